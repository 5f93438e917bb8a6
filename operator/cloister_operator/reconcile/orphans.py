"""Garbage collection of orphans: what outlived its owner because owner references were removed.

Who deletes a Container may keep the garbage collector from its Enclaves: by an orphaning deletion,
which removes the owner references, or by a finalizer on the Container, which the decision about it
handles. A live read confirms each absence: the cache may be behind.
"""

import logging

from cloister_clients.kube import NotFound
from cloister_clients.kube.kinds import CONFIG_MAP, POD, RESOURCE_CLAIM, SECRET, SERVICE, KindRef
from cloister_crds.kinds import Enclave
from cloister_crds.kinds.host_devices import MOST_CLAIMED
from cloister_crds.names import ENCLAVE_LABEL, config_map_name, gpu_claim_name, snapshot_name
from cloister_operator.cache.projections import CONTAINER, ENCLAVE
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.result import DONE, Result
from cloister_operator.workqueue.keys import Key

__all__ = [
    "delete_children_of_orphaning",
    "delete_orphan",
    "delete_ownerless_pod",
    "reconcile_service",
]

logger = logging.getLogger(__name__)

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
    """Delete the ConfigMap, snapshot and claims of an Enclave of that uid; empty = it is gone."""
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
