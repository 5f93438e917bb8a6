"""Garbage collection of orphaned core Secrets, which an interrupted request of the facade left.

The facade writes a value before the object that names it, so that no object is without its value
(`cloister_api.services.core_secrets`). Where the API server died in between, the core Secret has
neither an owner nor an object that names it, and is deleted here once the request cannot still be
under way.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from cloister_clients.kube import Conflict, Forbidden, KubeError
from cloister_clients.kube.kinds import SECRET
from cloister_crds.kinds import Organization
from cloister_crds.names import VALUE_LABEL
from cloister_operator.cache.projections import ORGANIZATION, REGISTRY_CREDENTIAL, SECRET_KIND, Body
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.grace_period import wait_for_age
from cloister_operator.workqueue.keys import Key
from cloister_operator.writer.writer import LeadershipLost

__all__ = ["collect_garbage", "delete_orphaned_secrets", "ownerless"]

logger = logging.getLogger(__name__)

GRACE_FACTOR = 5
"""The grace period in those of an unused claim: a request that hangs may still need its value, and
values cannot be created again."""
SHORTEST_INTERVAL = 1.0
"""Seconds between two collections at least."""


async def collect_garbage(context: ProcessContext) -> None:
    """Delete orphaned core Secrets at intervals, until cancelled."""
    while True:
        try:
            await delete_orphaned_secrets(context)
        except (KubeError, LeadershipLost) as error:
            logger.warning("orphaned core Secrets were not collected: %s", error)
        await asyncio.sleep(max(SHORTEST_INTERVAL, context.settings.claim_age_seconds))


async def delete_orphaned_secrets(context: ProcessContext) -> None:
    """Delete every orphaned core Secret.

    Each namespace is listed by itself: the operator may read core Secrets in the namespaces of
    organizations alone. One that refuses, since it is being made or deleted, costs itself only.

    Raises
    ------
    KubeError
        When a read or a write fails.
    LeadershipLost
        When this process no longer leads.
    """
    for entry in context.store.entries(ORGANIZATION):
        namespace = context.models.read(Organization, entry).spec.namespace
        try:
            await _delete_in(context, namespace)
        except Forbidden as error:
            logger.info("core Secrets of %s cannot be read at present: %s", namespace, error)


async def _delete_in(context: ProcessContext, namespace: str) -> None:
    """Delete the orphaned core Secrets of a namespace."""
    age = GRACE_FACTOR * context.settings.claim_age_seconds
    page = await context.client.list(
        SECRET, namespace, label_selector=VALUE_LABEL, metadata_only=True
    )
    candidates = ownerless(page.items, age, context.now())
    named = await _named(context, namespace) if candidates else set()
    for each in candidates:
        if each["metadata"]["name"] not in named:
            await _delete(context, each["metadata"])


def ownerless(items: Iterable[Body], age: float, now: datetime) -> list[Body]:
    """Return the core Secrets without an owner that have an age; an object may still name them.

    Parameters
    ----------
    items
        Core Secrets of the facade, with their metadata.
    age
        The least age, in seconds.
    now
        The present, in UTC.
    """
    found = []
    for each in items:
        metadata = each["metadata"]
        created = datetime.fromisoformat(metadata["creationTimestamp"])
        if not metadata.get("ownerReferences") and wait_for_age(created, age, now) is None:
            found.append(each)
    return found


async def _named(context: ProcessContext, namespace: str) -> set[str]:
    """Return which core Secrets a namespace's objects name, read live."""
    named = set()
    for kind in (SECRET_KIND, REGISTRY_CREDENTIAL):
        page = await context.client.list(kind, namespace)
        named |= {str(each["spec"]["secretRef"]["name"]) for each in page.items}
    return named


async def _delete(context: ProcessContext, metadata: Mapping[str, Any]) -> None:
    namespace, name = metadata["namespace"], metadata["name"]
    logger.info("core Secret %s/%s: no object names it", namespace, name)
    try:
        await context.writer.delete(
            Key("core Secret", namespace, name),
            SECRET,
            namespace,
            name,
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"],
        )
    except Conflict:
        # Somebody uses it after all; the next collection checks it again.
        logger.info("core Secret %s/%s was written meanwhile and stays", namespace, name)
