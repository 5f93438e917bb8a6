"""The reconciler of a Deployment: counts, and garbage collection of one that Cloister created."""

import logging
from collections import Counter

from cloister_crds.kinds import Deployment
from cloister_crds.kinds.container import ContainerPhase, DesiredState
from cloister_crds.kinds.deployment import DeploymentCounts
from cloister_crds.kinds.meta import REQUESTED_AT_ANNOTATION
from cloister_crds.lifecycle.pause import is_paused
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from cloister_crds.names import MANAGED_BY, MANAGED_BY_LABEL
from cloister_operator.cache.projections import CONTAINER, DEPLOYMENT
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.metering import wait_for_age
from cloister_operator.reconcile.results import DONE, Result, containers_of, write_status_throttled
from cloister_operator.workqueue.triggers import Key

logger = logging.getLogger(__name__)

_STOPPED = (ContainerPhase.STOPPED, ContainerPhase.STOPPING)


async def reconcile_deployment(context: ProcessContext, key: Key) -> Result:
    """Count the Containers of a Deployment, or delete it with its last one.

    Raises
    ------
    KubeError
        When a write or a confirming read fails; the key is then retried.
    """
    entry = context.store.get(DEPLOYMENT, key.namespace, key.name)
    if entry is None:
        return DONE
    deployment = context.models.read(Deployment, entry)
    if is_paused(deployment) or deployment.metadata.deletion_timestamp is not None:
        return DONE
    phases = _phases(context, key, deployment)
    # A Deployment that a user created stays without Containers.
    if not phases and deployment.metadata.labels.get(MANAGED_BY_LABEL) == MANAGED_BY:
        return await _collect_garbage(context, key, deployment)
    generation = deployment.metadata.generation
    status = deployment.status.model_copy(
        update={
            "observed_generation": generation,
            "counts": _counts(phases),
            "last_handled_request": _handled(context, key, deployment),
            "conditions": merge(
                deployment.status.conditions,
                [ConditionUpdate("Ready", True, "Counted", f"{sum(phases.values())} containers.")],
                generation=generation,
                now=context.now(),
            ),
        }
    )
    return await write_status_throttled(
        context, key, DEPLOYMENT, deployment.status.wire(), status.wire()
    )


def _phases(
    context: ProcessContext, key: Key, deployment: Deployment
) -> Counter[ContainerPhase | None]:
    """Count the Containers of the repository by phase."""
    return Counter(
        each.status.phase for each in containers_of(context, key.namespace, deployment.spec.repo)
    )


def _handled(context: ProcessContext, key: Key, deployment: Deployment) -> str:
    """Return the last requested check that every Container with auto-update has handled."""
    requested = deployment.metadata.annotations.get(REQUESTED_AT_ANNOTATION, "")
    for container in containers_of(context, key.namespace, deployment.spec.repo):
        spec, latest = container.spec, container.status.latest_release
        follows = spec.auto_update and spec.state is DesiredState.RUNNING
        if follows and (latest is None or latest.request != requested):
            return deployment.status.last_handled_request
    return requested


def _counts(phases: Counter[ContainerPhase | None]) -> DeploymentCounts:
    """Sum the phases up to the five counts (spec 7.2)."""
    instances = sum(phases.values())
    ready, failed = phases[ContainerPhase.READY], phases[ContainerPhase.FAILED]
    stopped = sum(phases[each] for each in _STOPPED)
    return DeploymentCounts(
        instances=instances,
        ready=ready,
        failed=failed,
        stopped=stopped,
        deploying=instances - ready - failed - stopped,
    )


async def _collect_garbage(context: ProcessContext, key: Key, deployment: Deployment) -> Result:
    """Delete a Deployment without Containers after its grace period, confirmed by a live list.

    A Deployment is created before its first Container, so a young one may still get one.
    """
    created = deployment.metadata.creation_timestamp
    wait = wait_for_age(created, context.settings.claim_age_seconds, context.clock())
    if wait is not None:
        return Result(wait)
    page = await context.client.list(CONTAINER, key.namespace)
    same, repo = context.decision.repositories.same, deployment.spec.repo
    if any(same(each["spec"]["repo"], repo) for each in page.items):
        # The cache lags behind: what it lacks is in the list.
        for each in page.items:
            context.store.put(CONTAINER, each)
        return DONE
    logger.info("%s: its last Container is gone", key.text)
    await context.writer.delete(
        key,
        DEPLOYMENT,
        key.namespace,
        key.name,
        uid=deployment.metadata.uid,
        resource_version=deployment.metadata.resource_version,
    )
    return Result(wrote=True)
