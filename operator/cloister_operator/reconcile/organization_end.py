"""The end of an Organization: it outlives what runs in its namespace, then ends the namespace.

Our finalizer guards it. No count does: whether anything is left is read from the cache, and once
more live before anything is deleted.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta

from cloister_clients.kube import KindRef
from cloister_clients.kube.kinds import NAMESPACE, POD
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import ORGANIZATION_FINALIZER
from cloister_crds.lifecycle.state.conditions import ConditionUpdate
from cloister_crds.names import (
    CONTAINER_ANNOTATION,
    ENCLAVE_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    ORGANIZATION_LABEL,
    distinct_label,
)
from cloister_operator.cache.projections import CLAIM, CONTAINER, ENCLAVE, ORGANIZATION
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.tenant_isolation import delete_isolation
from cloister_operator.workqueue.keys import Key

__all__ = ["ENDING_RECHECK", "end_organization", "ensure_finalizer"]

ENDING_RECHECK = timedelta(seconds=5)
"""Time until an Organization that is being deleted is checked again, if nothing changes before."""
_NAMED = 10
"""Containers that a message names."""

logger = logging.getLogger(__name__)


async def ensure_finalizer(
    context: ProcessContext, key: Key, organization: Organization
) -> Organization:
    """Add our finalizer unless the Organization has it, or is being deleted already.

    Returns
    -------
    Organization
        As it is then.

    Raises
    ------
    KubeError
        When the write fails; the key is then retried.
    """
    meta = organization.metadata
    if meta.deletion_timestamp is not None or ORGANIZATION_FINALIZER in meta.finalizers:
        return organization
    return await _set_finalizers(
        context, key, organization, (*meta.finalizers, ORGANIZATION_FINALIZER)
    )


async def end_organization(
    context: ProcessContext, key: Key, organization: Organization
) -> ConditionUpdate | None:
    """Delete what an Organization that is being deleted leaves, once nothing runs in it.

    A namespace that the operator created is deleted; of one that it adopted, the guards.

    Returns
    -------
    ConditionUpdate | None
        What it waits for; None = for nothing: the object goes.

    Raises
    ------
    KubeError
        When a write or a confirming read fails; the key is then retried.
    """
    if ORGANIZATION_FINALIZER not in organization.metadata.finalizers:
        return None
    labels = _labels_of_namespace(context, organization)
    if labels is not None and labels.get(ORGANIZATION_LABEL) == distinct_label(key.name):
        waits = _waits_for(context, organization) or await _still_has(context, organization)
        if waits:
            return ConditionUpdate("Ready", False, "AwaitingContainers", waits)
        if labels.get(MANAGED_BY_LABEL) == MANAGED_BY:
            return await _delete_namespace(context, key, organization)
        await delete_isolation(context, key, organization)
    others = (each for each in organization.metadata.finalizers if each != ORGANIZATION_FINALIZER)
    logger.info("%s: nothing is left of it", key.text)
    await _set_finalizers(context, key, organization, tuple(others))
    return None


def _labels_of_namespace(
    context: ProcessContext, organization: Organization
) -> dict[str, str] | None:
    """Return the labels of the namespace that an Organization names; None = it does not exist."""
    entry = context.store.get(NAMESPACE, "", organization.spec.namespace)
    labels: dict[str, str] | None = None
    if entry is not None:
        labels = entry.decode()["metadata"].get("labels") or {}
    return labels


def _waits_for(context: ProcessContext, organization: Organization) -> str:
    """Return what is left in the namespace by the cache, as a sentence; empty = nothing."""
    store, namespace = context.store, organization.spec.namespace
    containers = sorted(each.name for each in store.entries(CONTAINER, namespace))
    if containers:
        return _containers_left(containers, namespace)
    enclaves = {each.name for ref in (ENCLAVE, POD) for each in store.entries(ref, namespace)}
    if enclaves:
        return f"Its enclaves are ending: {_names(sorted(enclaves))}."
    claims = sorted(
        each.name
        for each in store.entries(CLAIM)
        if each.decode()["spec"]["holder"]["namespace"] == namespace
    )
    if claims:
        return f"Its host names are being released: {_names(claims)}."
    if context.gateway is None:
        return ""
    routes = sorted(
        each.name
        for each in store.entries(context.gateway.route, context.settings.operator_namespace)
        if _container_of_route(each.decode()).startswith(f"{namespace}/")
    )
    return f"Its routes are being deleted: {_names(routes)}." if routes else ""


def _container_of_route(route: dict[str, dict[str, dict[str, str]]]) -> str:
    """Return the Container of a TLSRoute as ``namespace/name``; empty = it does not name one."""
    return route["metadata"].get("annotations", {}).get(CONTAINER_ANNOTATION, "")


async def _still_has(context: ProcessContext, organization: Organization) -> str:
    """Return what the server has in the namespace, as a sentence: the cache may be behind."""
    namespace = organization.spec.namespace
    containers = await _listed(context, CONTAINER, namespace)
    if containers:
        return _containers_left(containers, namespace)
    enclaves = await _listed(context, ENCLAVE, namespace)
    enclaves += await _listed(context, POD, namespace, label_selector=ENCLAVE_LABEL)
    return f"Its enclaves are ending: {_names(sorted(set(enclaves)))}." if enclaves else ""


async def _listed(
    context: ProcessContext, ref: KindRef, namespace: str, *, label_selector: str | None = None
) -> list[str]:
    """Return the names of the objects of a kind, read live."""
    page = await context.client.list(
        ref, namespace, label_selector=label_selector, metadata_only=True
    )
    return sorted(each["metadata"]["name"] for each in page.items)


def _containers_left(names: Sequence[str], namespace: str) -> str:
    """Return that Containers are left, and how to delete them."""
    what = "1 Container" if len(names) == 1 else f"{len(names)} Containers"
    return (
        f"It still has {what}: {_names(names)}. They go on serving; delete them with "
        f"kubectl delete ctr --all -n {namespace}"
    )


def _names(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


async def _delete_namespace(
    context: ProcessContext, key: Key, organization: Organization
) -> ConditionUpdate:
    """Delete the namespace with all that is left in it: configuration, values, guards."""
    name = organization.spec.namespace
    entry = context.store.get(NAMESPACE, "", name)
    if entry is not None and "deletionTimestamp" not in entry.decode()["metadata"]:
        logger.info("%s: its namespace %s is deleted", key.text, name)
        await context.writer.delete(key, NAMESPACE, "", name, uid=entry.uid)
    message = f"Namespace {name} is being deleted."
    return ConditionUpdate("Ready", False, "NamespaceDeleting", message)


async def _set_finalizers(
    context: ProcessContext, key: Key, organization: Organization, finalizers: tuple[str, ...]
) -> Organization:
    """Write the finalizers, in the version that was observed."""
    version = organization.metadata.resource_version
    patch = {"metadata": {"resourceVersion": version, "finalizers": list(finalizers)}}
    written = await context.writer.patch(key, ORGANIZATION, "", key.name, patch)
    return Organization.read(dict(written))
