"""The reconciler of a HostnameClaim: garbage collection of orphans, whose holder is gone.

Only the operator releases claims; those of a Container that exists by the decision about it.
"""

import logging
from datetime import timedelta

from cloister_clients.kube import NotFound
from cloister_crds.kinds import HostnameClaim
from cloister_operator.cache.projections import CLAIM, CONTAINER
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.grace_period import wait_for_age
from cloister_operator.reconcile.hostname_holders import is_served
from cloister_operator.reconcile.result import DONE, Result
from cloister_operator.workqueue.keys import Key

__all__ = ["reconcile_claim"]

_POD_RECHECK = timedelta(seconds=5)
"""Time until a claim whose last Pod is terminating is checked again."""

logger = logging.getLogger(__name__)


async def reconcile_claim(context: ProcessContext, key: Key) -> Result:
    """Release a claim when its holder is gone.

    Raises
    ------
    KubeError
        When a write or a confirming read fails; the key is then retried.
    """
    entry = context.store.get(CLAIM, "", key.name)
    claim = context.models.read(HostnameClaim, entry) if entry else None
    if claim is None or _is_held(context, claim):
        return DONE
    wait = wait_for_age(
        claim.metadata.creation_timestamp, context.settings.claim_age_seconds, context.clock()
    )
    if wait is not None:
        return Result(wait)
    if is_served(context, claim.metadata.name, claim.spec.holder):
        # Requests for the name still reach that Pod: nobody else may have the name yet.
        return Result(_POD_RECHECK)
    if not await _holder_is_gone(context, claim):
        return DONE
    live = await context.writer.refresh(CLAIM, "", key.name)
    if live is None or live["metadata"]["uid"] != claim.metadata.uid:
        return DONE
    logger.info("%s: its holder is gone", key.text)
    await context.writer.delete(
        key,
        CLAIM,
        "",
        key.name,
        uid=claim.metadata.uid,
        resource_version=live["metadata"]["resourceVersion"],
    )
    return Result(wrote=True)


def _is_held(context: ProcessContext, claim: HostnameClaim) -> bool:
    """Return whether the holder exists."""
    holder = claim.spec.holder
    return context.store.get(CONTAINER, holder.namespace, holder.name) is not None


async def _holder_is_gone(context: ProcessContext, claim: HostnameClaim) -> bool:
    """Read the holder live; return whether it is gone. One that exists is added to the cache."""
    holder = claim.spec.holder
    try:
        body = await context.client.get(CONTAINER, holder.name, holder.namespace)
    except NotFound:
        return True
    context.store.put(CONTAINER, body)
    return False
