"""Publication of the settings that the facade must not differ in."""

import asyncio
import logging

from cloister_clients.kube import KubeError
from cloister_clients.kube.kinds import CONFIG_MAP
from cloister_crds.backoff import Backoff
from cloister_operator.context import ProcessContext

__all__ = ["publish_settings"]

logger = logging.getLogger(__name__)

_BACKOFF = Backoff(first=1.0, longest=60.0, jitter=(0.5, 1.0))
"""Delays between failed attempts."""


async def publish_settings(context: ProcessContext) -> None:
    """Publish the settings of this operator, which leads, and restore them at each resync."""
    settings, failures = context.settings, 0
    manifest = settings.installation().manifest(settings.operator_namespace)
    while True:
        try:
            await context.client.apply(CONFIG_MAP, manifest)
            failures = 0
        except KubeError as error:
            failures += 1
            logger.warning("the settings for the API were not published: %s", error)
        await asyncio.sleep(_BACKOFF.jittered(failures) if failures else settings.resync_seconds)
