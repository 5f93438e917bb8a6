"""Waits until the cluster's quota controller counts objects of our kinds.

Until it does, which takes up to five minutes after the CRDs were installed, the API server refuses
every create that a quota of such a count covers. A quota in our own namespace, where nobody creates
any, shows when it does; then the quotas of organizations get their default counts.
"""

import asyncio
import itertools
import logging

from cloister_clients.kube import KubeError
from cloister_clients.kube.kinds import RESOURCE_QUOTA
from cloister_operator.cache.projections import ORGANIZATION
from cloister_operator.context import ProcessContext
from cloister_operator.enclave.tenant.resource_quota import is_counted
from cloister_operator.workqueue.keys import Key

__all__ = ["KINDS_QUOTA", "await_counted_kinds", "look_for_counts"]

logger = logging.getLogger(__name__)

KINDS_QUOTA = "cloister-kinds"
"""Name of the quota in the operator's namespace; it is part of the roles' manifest."""
_POLL, _POLLS = 10.0, 60
"""Seconds between two looks, and how many there are of these."""
_RARE_POLL = 300.0
"""Seconds between two looks later: somebody has to do something first."""


async def look_for_counts(context: ProcessContext) -> bool:
    """Remember and return whether our kinds are counted.

    Called before the first reconcile, so that a restart does not take the counts out of the quotas.
    """
    namespace = context.settings.operator_namespace
    try:
        quota = await context.client.get(RESOURCE_QUOTA, KINDS_QUOTA, namespace)
    except KubeError as error:
        logger.warning(
            "the quota %s cannot be read, and default limits do not apply to kubectl: %s; apply "
            "crds/manifests/roles or upgrade the chart",
            KINDS_QUOTA,
            error,
        )
        return False
    context.memory.kinds_counted = is_counted(quota)
    return context.memory.kinds_counted


async def await_counted_kinds(context: ProcessContext) -> None:
    """Wait for the counts, then have the guards of all namespaces applied again."""
    delays = itertools.chain(itertools.repeat(_POLL, _POLLS), itertools.repeat(_RARE_POLL))
    for delay in delays:
        await asyncio.sleep(delay)
        if await look_for_counts(context):
            break
    logger.info("the cluster counts the kinds that quotas name")
    context.memory.forget_applied()
    for entry in context.store.entries(ORGANIZATION):
        context.queue.add(Key("Organization", entry.namespace, entry.name), low_priority=True)
