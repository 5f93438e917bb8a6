"""Garbage collection of orphans.

Objects that outlived their owner, and Secrets of interrupted requests.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from cloister_clients.kube import Conflict, Forbidden, KubeError, NotFound
from cloister_clients.kube.kinds import CONFIG_MAP, POD, RESOURCE_CLAIM, SECRET, SERVICE, KindRef
from cloister_crds.kinds import Enclave, Organization
from cloister_crds.kinds.host_devices import MOST_CLAIMED
from cloister_crds.names import (
    ENCLAVE_LABEL,
    VALUE_LABEL,
    config_map_name,
    gpu_claim_name,
    snapshot_name,
)
from cloister_operator.cache.projections import (
    CONTAINER,
    ENCLAVE,
    ORGANIZATION,
    REGISTRY_CREDENTIAL,
    SECRET_KIND,
    Body,
)
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.metering import wait_for_age
from cloister_operator.reconcile.results import DONE, Result
from cloister_operator.workqueue.triggers import Key
from cloister_operator.writer import LeadershipLost

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

    Each namespace is listed on its own: the operator may read core Secrets in the namespaces of
    organizations only. One that refuses, since it is being created or deleted, costs only itself.

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


ORPHAN = "orphan"
"""Finalizer of an orphaning deletion (Kubernetes, "Garbage Collection")."""


async def delete_orphan(context: ProcessContext, key: Key, enclave: Enclave) -> bool:
    """Delete an Enclave whose Container is gone or another one; return whether it was deleted.

    Raises
    ------
    KubeError
        When a write or a confirming read fails; the key is then retried.
    """
    if enclave.metadata.deletion_timestamp is not None or _has_container(context, enclave):
        return False
    await context.writer.refresh(CONTAINER, key.namespace, enclave.spec.container.name)
    if _has_container(context, enclave):
        return False
    logger.info("%s: its Container is gone", key.text)
    await context.writer.delete(
        key,
        ENCLAVE,
        key.namespace,
        key.name,
        uid=enclave.metadata.uid,
        resource_version=enclave.metadata.resource_version,
        propagation="Foreground",
    )
    return True


def _has_container(context: ProcessContext, enclave: Enclave) -> bool:
    """Return whether the cache has the Container of an Enclave, by its uid."""
    owner = enclave.spec.container
    entry = context.store.get(CONTAINER, enclave.metadata.namespace or "", owner.name)
    return entry is not None and entry.uid == owner.uid


async def delete_ownerless_pod(context: ProcessContext, key: Key) -> bool:
    """Delete the Pod, ConfigMap, snapshot and claims that an Enclave left.

    Return whether there were any.

    Only where the Pod has no owner: else the garbage collector deletes them.

    Parameters
    ----------
    key
        Key of an Enclave that is gone or is being deleted.

    Raises
    ------
    KubeError
        When a write or a confirming read fails; the key is then retried.
    """
    pod = context.store.get(POD, key.namespace, key.name)
    if pod is None or pod.decode()["metadata"].get("ownerReferences"):
        return False
    if "deletionTimestamp" in pod.decode()["metadata"]:
        return False
    live = await context.writer.refresh(ENCLAVE, key.namespace, key.name)
    if live is not None and "deletionTimestamp" not in live["metadata"]:
        return False
    logger.info("%s: its Pod has no owner", key.text)
    await _delete_children(context, key, "")
    await context.writer.delete(key, POD, key.namespace, key.name, uid=pod.uid)
    return True


async def delete_children_of_orphaning(context: ProcessContext, key: Key, enclave: Enclave) -> None:
    """Delete what an Enclave's Pod was made of while an orphaning deletion is under way.

    The garbage collector removes only the owner references then, perhaps after the Pod is gone,
    by which the rest would be found.

    Raises
    ------
    KubeError
        When a read or write fails; the key is then retried.
    """
    if ORPHAN in enclave.metadata.finalizers:
        await _delete_children(context, key, enclave.metadata.uid)


async def _delete_children(context: ProcessContext, key: Key, uid: str) -> None:
    """Delete the ConfigMap, snapshot and claims of an Enclave of that uid; empty if it is gone."""
    for ref, name in (
        (CONFIG_MAP, config_map_name(key.name)),
        (SECRET, snapshot_name(key.name)),
    ):
        await _delete_child(context, key, ref, name, uid)
    for name in (gpu_claim_name(key.name, number) for number in range(MOST_CLAIMED)):
        if not await _delete_child(context, key, RESOURCE_CLAIM, name, uid):
            break


async def _delete_child(
    context: ProcessContext, key: Key, ref: KindRef, name: str, uid: str
) -> bool:
    """Delete a child of an Enclave by its name, where it is ours and nobody else's.

    Return whether there is one of that name.
    """
    try:
        metadata = (await context.client.get(ref, name, key.namespace))["metadata"]
    except NotFound:
        return False
    owners = {owner["uid"] for owner in metadata.get("ownerReferences") or ()}
    if owners - {uid} or ENCLAVE_LABEL not in (metadata.get("labels") or {}):
        return True
    version = metadata["resourceVersion"]
    await context.writer.delete(
        key, ref, key.namespace, name, uid=metadata["uid"], resource_version=version
    )
    return True


async def reconcile_service(context: ProcessContext, key: Key) -> Result:
    """Delete a Service of ours that has no owner and selects no Enclave of a Container that exists.

    Raises
    ------
    KubeError
        When a write or a confirming read fails; the key is then retried.
    """
    entry = context.store.get(SERVICE, key.namespace, key.name)
    if entry is None or entry.decode()["metadata"].get("ownerReferences"):
        return DONE
    selected = entry.decode()["spec"]["selector"].get(ENCLAVE_LABEL, "")
    found = await context.writer.refresh(ENCLAVE, key.namespace, selected) if selected else None
    if found is not None and _has_container(context, Enclave.read(dict(found))):
        return DONE
    logger.info("%s: its Container is gone", key.text)
    version = str(entry.version)
    await context.writer.delete(
        key, SERVICE, key.namespace, key.name, uid=entry.uid, resource_version=version
    )
    return Result(wrote=True)
