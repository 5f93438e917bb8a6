"""The reconciler of an Organization: its namespace, its counts, its end."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from cloister_clients.kube import AlreadyExists, KindRef, NotFound
from cloister_clients.kube.kinds import NAMESPACE, POD, RESOURCE_QUOTA
from cloister_crds.kinds import Container, Organization
from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.organization import (
    ORGANIZATION_FINALIZER,
    OrganizationCounts,
    OrganizationStatus,
)
from cloister_crds.lifecycle.admission.limits import counted
from cloister_crds.lifecycle.admission.quotas import above_limits
from cloister_crds.lifecycle.pause import is_paused
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from cloister_crds.names import (
    CONTAINER_ANNOTATION,
    ENCLAVE_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    ORGANIZATION_LABEL,
    distinct_label,
)
from cloister_operator.cache.projections import (
    CLAIM,
    CONTAINER,
    DOMAIN,
    ENCLAVE,
    ORGANIZATION,
    SECRET_KIND,
    SSH_KEY,
)
from cloister_operator.context import ProcessContext
from cloister_operator.enclave.tenant import QUOTA, build_namespace, is_counted
from cloister_operator.reconcile.gather import running_of
from cloister_operator.reconcile.results import DONE, Result, write_status_throttled
from cloister_operator.reconcile.tenant_isolation import delete_isolation, ensure_isolation
from cloister_operator.workqueue.triggers import Key

ENDING_RECHECK = timedelta(seconds=5)
"""Time until an Organization that is being deleted is checked again, if nothing changes before."""
_NAMED = 10
"""Containers that a message names."""

logger = logging.getLogger(__name__)


async def ensure_finalizer(
    context: ProcessContext, key: Key, organization: Organization
) -> Organization:
    """Add our finalizer unless the Organization has it, or is being deleted already.

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
        What it waits for; None if for nothing: the object is deleted.

    Raises
    ------
    KubeError
        When a write or a confirming read fails; the key is then retried.
    """
    if ORGANIZATION_FINALIZER not in organization.metadata.finalizers:
        return None
    labels = _labels_of_namespace(context, organization)
    if labels is not None and labels.get(ORGANIZATION_LABEL) == distinct_label(key.name):
        # The cache is read first; the server is queried only when nothing seems to be left.
        waits = _waits_for(context, organization) or await _still_has(context, organization)
        if waits:
            return ConditionUpdate("Ready", False, "AwaitingContainers", waits)
        if labels.get(MANAGED_BY_LABEL) == MANAGED_BY:
            return await _delete_namespace(context, key, organization)
        # An adopted namespace is its owner's: only the operator's own objects are removed.
        await delete_isolation(context, key, organization)
    others = (each for each in organization.metadata.finalizers if each != ORGANIZATION_FINALIZER)
    logger.info("%s: nothing is left of it", key.text)
    await _set_finalizers(context, key, organization, tuple(others))
    return None


def _labels_of_namespace(
    context: ProcessContext, organization: Organization
) -> dict[str, str] | None:
    """Return the labels of the namespace that an Organization names; None if it does not exist."""
    entry = context.store.get(NAMESPACE, "", organization.spec.namespace)
    labels: dict[str, str] | None = None
    if entry is not None:
        labels = entry.decode()["metadata"].get("labels") or {}
    return labels


def _waits_for(context: ProcessContext, organization: Organization) -> str:
    """Return what the cached namespace still contains, as a sentence; empty if nothing."""
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
    """Return the Container of a TLSRoute as ``namespace/name``; empty if it does not name one."""
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


_SYSTEM = ("kube-", "openshift-")
_RESERVED = ("default",)
_RECHECK = timedelta(minutes=1)
_COUNTING_RECHECK = timedelta(seconds=1)


async def reconcile_organization(context: ProcessContext, key: Key) -> Result:
    """Create the namespace of an Organization with its guards, and report its status.

    Raises
    ------
    KubeError
        When a write fails; the key is then retried.
    """
    entry = context.store.get(ORGANIZATION, "", key.name)
    if entry is None:
        return DONE
    organization = context.models.read(Organization, entry)
    # Guarded before there is a namespace in which anything could be; pause changes nothing of it.
    organization = await ensure_finalizer(context, key, organization)
    deleting = organization.metadata.deletion_timestamp is not None
    if deleting:
        ending = await end_organization(context, key, organization)
        if ending is None:
            return Result(wrote=True)
        finding = ending
    elif is_paused(organization):
        return DONE
    else:
        finding = await _namespace(context, key, organization)
    counting = False
    if finding.status:
        await ensure_isolation(context, key, organization)
        counting = not await _limits_apply(context, organization)
        if counting:
            message = (
                "The cluster has not counted yet what the limits are for, and refuses creates "
                "until it has; after an installation that takes up to five minutes."
            )
            finding = ConditionUpdate("Ready", False, "LimitsNotCounted", message)
    status = _status(context, organization, finding, context.now())
    before, after = organization.status.wire(), status.wire()
    written = await write_status_throttled(context, key, ORGANIZATION, before, after)
    if finding.status:
        return written
    recheck = ENDING_RECHECK if deleting else _COUNTING_RECHECK if counting else _RECHECK
    return Result(min(written.requeue_after or recheck, recheck), wrote=written.wrote)


async def _namespace(
    context: ProcessContext, key: Key, organization: Organization
) -> ConditionUpdate:
    """Create the namespace, or adopt one with our label; never another's nor the system's."""
    name = organization.spec.namespace
    reserved = (*_RESERVED, context.settings.operator_namespace)
    if name.startswith(_SYSTEM) or name in reserved:
        message = (
            f"Namespace {name} belongs to the cluster; create an Organization with another one."
        )
        return ConditionUpdate("Ready", status=False, reason="NamespaceRefused", message=message)
    entry = context.store.get(NAMESPACE, "", name)
    if entry is None:
        try:
            await context.writer.create(
                key, NAMESPACE, build_namespace(organization.metadata.name, name)
            )
        except AlreadyExists:
            # It was created meanwhile: its labels decide below.
            await context.writer.refresh(NAMESPACE, "", name)
        entry = context.store.get(NAMESPACE, "", name)
    if entry is None:
        return ConditionUpdate(
            "Ready", False, "NamespaceMissing", f"Namespace {name} is being created."
        )
    metadata = entry.decode()["metadata"]
    wanted = distinct_label(organization.metadata.name)
    # Without the label a namespace could be taken from its owner by naming it.
    if metadata.get("labels", {}).get(ORGANIZATION_LABEL) != wanted:
        message = (
            f"Namespace {name} exists and is not this organization's; label it "
            f"{ORGANIZATION_LABEL}={wanted} if it should be, or create an Organization with "
            "another."
        )
        return ConditionUpdate("Ready", status=False, reason="NamespaceNotOurs", message=message)
    if "deletionTimestamp" in metadata:
        return ConditionUpdate(
            "Ready", False, "NamespaceDeleting", f"Namespace {name} is being deleted."
        )
    return ConditionUpdate("Ready", True, "NamespaceReady", f"Namespace {name} is ready.")


async def _limits_apply(context: ProcessContext, organization: Organization) -> bool:
    """Return whether creates are judged by the quota; one that was ready once is not asked again.

    It is a quota's first count that takes long enough to be in somebody's way.
    """
    known = organization.status.conditions
    if any(each.type == "Ready" and each.status == "True" for each in known):
        return True
    try:
        quota = await context.client.get(RESOURCE_QUOTA, QUOTA, organization.spec.namespace)
    except NotFound:
        # The namespace was created again: none of its guards is there.
        context.memory.organization(organization).applied.clear()
        return False
    return is_counted(quota)


def _status(
    context: ProcessContext, organization: Organization, finding: ConditionUpdate, now: datetime
) -> OrganizationStatus:
    """Build the status; what was reported by the payment processor is kept."""
    namespace = organization.spec.namespace
    containers = [
        context.models.read(Container, entry)
        for entry in context.store.entries(CONTAINER, namespace)
    ]
    store = context.store
    places = counted(containers, running_of(context, namespace, containers))
    uids = {uid for _, uid in places}
    phases = [each.status.phase for each in containers if each.metadata.uid in uids]
    generation = organization.metadata.generation
    counts = OrganizationCounts(
        containers=len(places),
        ready=phases.count(ContainerPhase.READY),
        failed=phases.count(ContainerPhase.FAILED),
        secrets=store.count(SECRET_KIND, namespace),
        ssh_keys=store.count(SSH_KEY, namespace),
        domains=store.count(DOMAIN, namespace),
    )
    within = _within_limits(context, organization, counts)
    return organization.status.model_copy(
        update={
            "observed_generation": generation,
            "counts": counts,
            "conditions": merge(
                organization.status.conditions, [finding, within], generation=generation, now=now
            ),
        }
    )


def _within_limits(
    context: ProcessContext, organization: Organization, counts: OrganizationCounts
) -> ConditionUpdate:
    """Report of what there is more than may be: such as after a limit was lowered."""
    above = above_limits(organization.spec.limits, context.default_limits, counts)
    if not above:
        return ConditionUpdate("WithinLimits", True, "WithinLimits", "No limit is exceeded.")
    named = ", ".join(f"{what} {used} of {most}" for what, (used, most) in above.items())
    message = (
        f"There are more than spec.limits permits: {named}. What exists stays, and creates "
        "are refused. Delete some, or raise spec.limits."
    )
    return ConditionUpdate("WithinLimits", False, "AboveLimits", message)
