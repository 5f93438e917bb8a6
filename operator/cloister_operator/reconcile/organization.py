"""The reconciler of an Organization: its namespace, the isolation of its enclaves, its counts."""

import logging
from datetime import datetime, timedelta

from cloister_clients.kube import AlreadyExists, NotFound
from cloister_clients.kube.kinds import NAMESPACE, RESOURCE_QUOTA
from cloister_crds.kinds import Container, Organization
from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.organization import OrganizationCounts, OrganizationStatus
from cloister_crds.lifecycle.admission.limits import counted
from cloister_crds.lifecycle.admission.quotas import above_limits
from cloister_crds.lifecycle.pause import is_paused
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from cloister_crds.names import ORGANIZATION_LABEL, distinct_label
from cloister_operator.cache.projections import (
    CONTAINER,
    DOMAIN,
    ORGANIZATION,
    SECRET_KIND,
    SSH_KEY,
)
from cloister_operator.context import ProcessContext
from cloister_operator.enclave.tenant.namespace import build_namespace
from cloister_operator.enclave.tenant.resource_quota import QUOTA, is_counted
from cloister_operator.reconcile.gather import running_of
from cloister_operator.reconcile.organization_end import (
    ENDING_RECHECK,
    end_organization,
    ensure_finalizer,
)
from cloister_operator.reconcile.result import DONE, Result
from cloister_operator.reconcile.status_timing import write_status_throttled
from cloister_operator.reconcile.tenant_isolation import ensure_isolation
from cloister_operator.workqueue.keys import Key

__all__ = ["reconcile_organization"]

logger = logging.getLogger(__name__)

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
            await context.writer.refresh(NAMESPACE, "", name)
        entry = context.store.get(NAMESPACE, "", name)
    if entry is None:
        return ConditionUpdate(
            "Ready", False, "NamespaceMissing", f"Namespace {name} is being created."
        )
    metadata = entry.decode()["metadata"]
    wanted = distinct_label(organization.metadata.name)
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
