"""The reconciler of a Container: gather, decide, apply, report."""

import logging
from datetime import datetime, timedelta

from cloister_crds.kinds import Container, Enclave
from cloister_crds.lifecycle.state.observed import Observed
from cloister_operator.cache.projections import CONTAINER, ENCLAVE
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.actions import apply_action
from cloister_operator.reconcile.children import ApiUnresolved
from cloister_operator.reconcile.gather import observe
from cloister_operator.reconcile.results import DONE, Result, defer_status
from cloister_operator.rollout.decide import decide
from cloister_operator.rollout.decision import ClaimHostname, Decision
from cloister_operator.rollout.status import is_progress
from cloister_operator.workqueue.triggers import Key
from cloister_operator.writer import merge_patch

logger = logging.getLogger(__name__)


async def reconcile_container(context: ProcessContext, key: Key) -> Result:
    """Bring a Container one step closer to its spec.

    Raises
    ------
    ApiUnresolved
        When an Enclave needs the API and the API's address is not known; the key is then retried.
    KubeError
        When a write or a confirming read fails; the key is then retried.
    """
    entry = context.store.get(CONTAINER, key.namespace, key.name)
    if entry is None:
        return DONE
    container = context.models.read(Container, entry)
    await _confirm_active(context, container)
    observed, decision = _gather_and_decide(context, key, container)
    if await _claim_first(context, key, observed, decision):
        # Only this reconcile waits for the claims: it need not be triggered by them.
        observed, decision = _gather_and_decide(context, key, container)
    try:
        for action in decision.actions:
            await apply_action(context, key, observed, action)
    except ApiUnresolved:
        # The next decision reports the missing address, before the action fails again.
        await _report(context, key, observed, decision)
        raise
    progress = is_progress(container.status, decision.status)
    deferred = defer_status(
        context, container, decision.status, progress=progress, delay=timedelta()
    )
    if deferred is not None:
        waits = (each for each in (decision.requeue_after, deferred) if each is not None)
        return Result(min(waits), wrote=bool(decision.actions))
    wrote = await _report(context, key, observed, decision)
    return Result(decision.requeue_after, wrote=wrote or bool(decision.actions))


def _gather_and_decide(
    context: ProcessContext, key: Key, container: Container
) -> tuple[Observed, Decision]:
    """Gather the observed state, and decide."""
    now = context.now()
    observed = observe(context, container, now)
    _enqueue_changed(context, key, observed)
    decision = _decide(context, key, observed, now)
    logger.debug("%s: %s", key.text, decision.rule)
    return observed, decision


async def _claim_first(
    context: ProcessContext, key: Key, observed: Observed, decision: Decision
) -> bool:
    """Claim host names where that is all that was decided; return whether it was."""
    claims = [each for each in decision.actions if isinstance(each, ClaimHostname)]
    if not claims or len(claims) < len(decision.actions):
        return False
    for claim in claims:
        await apply_action(context, key, observed, claim)
    return True


def _decide(context: ProcessContext, key: Key, observed: Observed, now: datetime) -> Decision:
    """Decide, and request the lookups that the decision needs; again with recent answers of others.

    So of many Containers of one release each needs neither a lookup nor a reconcile of its own.
    """
    decision = decide(observed, now)
    while sum(context.resolver.reuse_recent(need, key) for need in decision.needs):
        decision = decide(observed, now)
    for need in decision.needs:
        context.resolver.request(need, key)
    return decision


async def _confirm_active(context: ProcessContext, container: Container) -> None:
    """Read the Enclave that serves live when the cache lacks it, before it counts as lost."""
    active, namespace = container.status.active_enclave, container.metadata.namespace or ""
    if active and context.store.get(ENCLAVE, namespace, active) is None:
        await context.writer.refresh(ENCLAVE, namespace, active)


def _enqueue_changed(context: ProcessContext, key: Key, observed: Observed) -> None:
    """Enqueue the Enclaves whose newest status is not written yet."""
    for enclave in observed.enclaves:
        entry = context.store.get(ENCLAVE, key.namespace, enclave.metadata.name)
        if entry is None:
            continue
        if enclave.status.phase != context.models.read(Enclave, entry).status.phase:
            context.queue.add(Key("Enclave", key.namespace, enclave.metadata.name))


async def _report(
    context: ProcessContext, key: Key, observed: Observed, decision: Decision
) -> bool:
    """Write the status when it differs, in the version that was decided on."""
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
