"""The pass over a Container: gather, decide, apply, report."""

import logging

from cloister_crds.kinds import Container
from cloister_crds.kinds.meta import PAUSED_ANNOTATION
from cloister_crds.lifecycle.decide import decide
from cloister_crds.lifecycle.decision import Decision
from cloister_crds.lifecycle.observed import Observed
from cloister_operator.context import ProcessContext
from cloister_operator.keys import Key
from cloister_operator.patches import merge_patch
from cloister_operator.reconcile.actions import carry_out
from cloister_operator.reconcile.result import DONE, Result
from cloister_operator.reconcile.scene import observe
from cloister_operator.watched import CONTAINER, ENCLAVE

__all__ = ["reconcile_container"]

logger = logging.getLogger(__name__)


async def reconcile_container(context: ProcessContext, key: Key) -> Result:
    """Look at a Container and bring it one step on.

    Parameters
    ----------
    context
        The process.
    key
        The Container.

    Raises
    ------
    KubeError
        When a write or a confirming read fails; the pass is then repeated.
    """
    entry = context.store.get(CONTAINER, key.namespace, key.name)
    if entry is None:
        return DONE
    container = context.models.read(Container, entry)
    if container.metadata.annotations.get(PAUSED_ANNOTATION) == "true":
        return DONE
    await _confirm_active(context, container)
    now = context.now()
    observed = observe(context, container, now)
    _wake_changed(context, key, observed)
    decision = decide(observed, now)
    logger.debug("%s: %s", key.text, decision.rule)
    for need in decision.needs:
        context.resolver.ask(need, key)
    for action in decision.actions:
        await carry_out(context, key, observed, action)
    wrote = await _report(context, key, observed, decision)
    return Result(decision.look_again, wrote=wrote or bool(decision.actions))


async def _confirm_active(context: ProcessContext, container: Container) -> None:
    """Read the Enclave that serves live when the store lacks it, before it counts as lost."""
    active, namespace = container.status.active_enclave, container.metadata.namespace or ""
    if active and context.store.get(ENCLAVE, namespace, active) is None:
        await context.writer.refresh(ENCLAVE, namespace, active)


def _wake_changed(context: ProcessContext, key: Key, observed: Observed) -> None:
    """Wake the Enclaves whose newest judgement is not written yet."""
    for enclave in observed.enclaves:
        entry = context.store.get(ENCLAVE, key.namespace, enclave.metadata.name)
        if entry is not None and enclave.status.phase != entry.read().get("status", {}).get(
            "phase"
        ):
            context.queue.add(Key("Enclave", key.namespace, enclave.metadata.name))


async def _report(
    context: ProcessContext, key: Key, observed: Observed, decision: Decision
) -> bool:
    """Write the status when it differs, on the version that was decided about."""
    container = observed.container
    patch = merge_patch(container.status.wire(), decision.status.wire())
    if not patch:
        return False
    logger.info("%s: %s, %s", key.text, decision.rule, decision.status.phase)
    body = {
        "metadata": {"resourceVersion": container.metadata.resource_version},
        "status": patch,
    }
    await context.writer.patch_status(key, CONTAINER, key.namespace, key.name, body)
    return True
