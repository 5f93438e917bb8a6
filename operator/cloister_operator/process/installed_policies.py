"""Checks whether the admission policies are in force, for the metrics and the log."""

import asyncio
import logging

from cloister_clients.kube import KubeClient, KubeError
from cloister_clients.kube.admission_policies import lapsed_policies
from cloister_clients.kube.kinds import POLICY, POLICY_BINDING
from cloister_operator.context import ProcessContext

__all__ = ["watch_policies"]

logger = logging.getLogger(__name__)


async def watch_policies(context: ProcessContext) -> None:
    """Check the policies now and as often as the cache is compared with the server."""
    reported: dict[str, str] = {}
    while True:
        try:
            lapsed = await _lapsed(context.client)
        except KubeError as error:
            logger.warning("cannot check the admission policies: %s", error)
        else:
            context.metrics.policies_lapsed(len(lapsed))
            if lapsed != reported:
                _report(lapsed)
                reported = lapsed
        await asyncio.sleep(context.settings.relist_seconds)


async def _lapsed(client: KubeClient) -> dict[str, str]:
    """Return the policies that are not in force, and why."""
    policies = await client.list(POLICY)
    bindings = await client.list(POLICY_BINDING)
    return lapsed_policies(policies.items, bindings.items)


def _report(lapsed: dict[str, str]) -> None:
    """Log which policies are not in force."""
    if not lapsed:
        logger.info("all admission policies are in force")
        return
    reasons = ", ".join(f"{name} ({why})" for name, why in lapsed.items())
    logger.error(
        "admission policies are not in force: %s; apply crds/manifests/policies, or whoever may "
        "write in a namespace of an organization can enter enclaves",
        reasons,
    )
