"""The pass over a Container: gather, decide, apply, report."""

import logging
from datetime import datetime

from cloister_crds.kinds import Container, Enclave
from cloister_crds.kinds.meta import PAUSED_ANNOTATION
from cloister_crds.lifecycle.state.observed import Observed
from cloister_operator.cache.projections import CONTAINER, ENCLAVE
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.actions import apply_action
from cloister_operator.reconcile.children import ApiUnresolved
from cloister_operator.reconcile.gather import observe
from cloister_operator.reconcile.result import DONE, Result
from cloister_operator.rollout.decide import decide
from cloister_operator.rollout.decision import ClaimHostname, Decision
from cloister_operator.workqueue.keys import Key
from cloister_operator.writer.merge_patch import merge_patch

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
    ApiUnresolved
        When an Enclave needs the API and its address is not known; the pass is then repeated.
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
    observed, decision = _look(context, key, container)
    if await _claim_first(context, key, observed, decision):
        # Nobody waits for the claims but this pass: it goes on with them.
        observed, decision = _look(context, key, container)
    try:
        for action in decision.actions:
            await apply_action(context, key, observed, action)
    except ApiUnresolved:
        # The next decision says so in the status: it comes before the action fails again.
        await _report(context, key, observed, decision)
        raise
    wrote = await _report(context, key, observed, decision)
    return Result(decision.requeue_after, wrote=wrote or bool(decision.actions))


def _look(context: ProcessContext, key: Key, container: Container) -> tuple[Observed, Decision]:
    """Gather what is known, and decide."""
    now = context.now()
    observed = observe(context, container, now)
    _wake_changed(context, key, observed)
    decision = _decide(context, key, observed, now)
    logger.debug("%s: %s", key.text, decision.rule)
    return observed, decision


async def _claim_first(
    context: ProcessContext, key: Key, observed: Observed, decision: Decision
) -> bool:
    """Claim host names where a decision wants nothing else; answer whether it did."""
    claims = [each for each in decision.actions if isinstance(each, ClaimHostname)]
    if not claims or len(claims) < len(decision.actions):
        return False
    for claim in claims:
        await apply_action(context, key, observed, claim)
    return True


def _decide(context: ProcessContext, key: Key, observed: Observed, now: datetime) -> Decision:
    """Decide, and ask what the decision needs; again with answers that others just had.

    So many Containers of one release neither write nor wake for each question of theirs.
    """
    decision = decide(observed, now)
    while sum(context.resolver.share(need) for need in decision.needs):
        decision = decide(observed, now)
    for need in decision.needs:
        context.resolver.ask(need, key)
    return decision


async def _confirm_active(context: ProcessContext, container: Container) -> None:
    """Read the Enclave that serves live when the store lacks it, before it counts as lost."""
    active, namespace = container.status.active_enclave, container.metadata.namespace or ""
    if active and context.store.get(ENCLAVE, namespace, active) is None:
        await context.writer.refresh(ENCLAVE, namespace, active)


def _wake_changed(context: ProcessContext, key: Key, observed: Observed) -> None:
    """Wake the Enclaves whose newest judgement is not written yet."""
    for enclave in observed.enclaves:
        entry = context.store.get(ENCLAVE, key.namespace, enclave.metadata.name)
        if entry is None:
            continue
        if enclave.status.phase != context.models.read(Enclave, entry).status.phase:
            context.queue.add(Key("Enclave", key.namespace, enclave.metadata.name))


async def _report(
    context: ProcessContext, key: Key, observed: Observed, decision: Decision
) -> bool:
    """Write the status when it differs, on the version that was decided about."""
    container = observed.container
    if decision.status == container.status:
        return False
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
