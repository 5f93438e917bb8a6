"""Deployments: the containers of one repository, their default of staging, updates of all."""

import asyncio
from collections.abc import Callable
from typing import Literal

from cloister_api.auth.authenticator import Principal
from cloister_api.cache import CachedContainer, CachedResource
from cloister_api.errors import (
    ApiError,
    bad_request,
    conflict,
    from_kube,
    not_found,
)
from cloister_api.records.container import (
    NO_LINKS,
    RecordSettings,
    ReplacementLinks,
    container_record,
    not_replaced,
    replacement_links,
    shown_state,
)
from cloister_api.records.resources import deployment_record
from cloister_api.schemas.containers import RelaunchRequest
from cloister_api.schemas.resources import (
    DeploymentResponse,
    DeploymentResult,
    UpdateDeploymentRequest,
)
from cloister_api.services.containers.refusals import require_subscription
from cloister_api.services.containers.resolution import (
    ReleaseResolver,
    refusal_of_source,
)
from cloister_api.services.containers.updater import ContainerUpdater
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.services.preconditions import VersionedRecord, agreed, patch_agreed, precondition
from cloister_clients.kube import KubeError
from cloister_clients.sources import SourceError
from cloister_crds.config import ServiceConfig
from cloister_crds.kinds import Container, Deployment
from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.lifecycle.admission.host_requirements import gpu_count
from cloister_crds.names import MANAGED_BY, MANAGED_BY_LABEL

_CONCURRENT = 8
"""Containers of a deployment that are updated at the same time."""
_SETTLED = {ContainerPhase.READY, ContainerPhase.FAILED}


class InstanceUpdate(RelaunchRequest):
    """A relaunch by the update of all instances, with staging of this update only."""

    relaunch_staging: bool | None = None
    """Whether the update waits for accept."""


class Deployments:
    """The deployments of all organizations."""

    def __init__(
        self,
        base: Infrastructure,
        resolver: ReleaseResolver,
        updater_of: Callable[[ReleaseResolver], ContainerUpdater],
        records: RecordSettings,
    ) -> None:
        self._client, self._cache = base.client, base.cache
        self._resolver = resolver
        self._updater_of = updater_of
        self._records = records
        self._gitops = frozenset(base.settings.gitops_managers)
        self._write_wait = base.settings.write_wait_seconds

    def all(self, principal: Principal, *, with_replaced: bool) -> list[DeploymentResponse]:
        """Return the records of all deployments, by repository.

        Parameters
        ----------
        with_replaced
            Whether the counts include containers that another one is replacing.
        """
        held = self._shown(principal)
        return [
            self._record(principal, held[repo], with_replaced=with_replaced)
            for repo in sorted(held)
        ]

    def _shown(self, principal: Principal) -> dict[str, CachedResource[Deployment]]:
        """Return the deployments that the API shows.

        One that Cloister created exists as long as its repository has containers: while it has
        none, a create is in progress or was interrupted, or the operator is about to delete it.
        """
        key = self._cache.repositories.key
        containers = self._cache.containers_of(principal.namespace)
        used = {key(one.container.spec.repo) for one in containers}
        held = self._cache.cached_deployments(principal.namespace)
        return {
            repo: one
            for repo, one in held.items()
            if repo in used or one.value.metadata.labels.get(MANAGED_BY_LABEL) != MANAGED_BY
        }

    async def change(
        self, principal: Principal, given: str, *, default_staging: bool, match: str | None
    ) -> VersionedRecord[DeploymentResponse]:
        """Change the default of staging.

        Parameters
        ----------
        default_staging
            Whether updates wait unless a container specifies it.
        match
            Header If-Match; None means any version.

        Raises
        ------
        ApiError
            404 when there is none; 409 when a GitOps manager owns it; 412 when it has another
            version.
        KubeError
            When the cluster refuses or does not respond.
        """
        held = self._with_id(principal, given)
        for manager in sorted(self._gitops & held.owners.get("defaultStaging", frozenset())):
            raise conflict(
                f"{manager} manages defaultStaging of this deployment; make the change in its "
                "repository"
            )
        present = await agreed(self._client, held.value, match, "deployment")
        patch = {
            "metadata": precondition(present, match),
            "spec": {"defaultStaging": default_staging},
        }
        item = await patch_agreed(self._client, present, patch, match, "deployment")
        version = item["metadata"]["resourceVersion"]
        await self._cache.deployments.reached(version, within=self._write_wait)
        return VersionedRecord(self._record(principal, self._with_id(principal, given)), version)

    async def update(
        self, principal: Principal, given: str, body: UpdateDeploymentRequest, match: str | None
    ) -> list[DeploymentResult]:
        """Update containers of a deployment to a tag, each independently.

        Parameters
        ----------
        match
            Header If-Match; None means any version. The deployment itself is not written, so that
            the same version may be named again.

        Returns
        -------
        list[DeploymentResult]
            One result for each container that was targeted, in the order of their creation.

        Raises
        ------
        ApiError
            404 when there is no such deployment; 400 for wrong identifiers, a tag that does not
            resolve, or ``promote_release``; 402 without a subscription; 412 when it has another
            version. Nothing is written then.
        """
        held = self._with_id(principal, given)
        deployment = await agreed(self._client, held.value, match, "deployment")
        require_subscription(principal.organization)
        if body.promote_release:
            raise bad_request(
                "promote_release",
                "promote_release: sources of repositories are only read here; publish the release "
                "at the source and leave this out",
            )
        targets = self._targets(principal, deployment, body.instance_ids)
        try:
            found = await self._resolver.find(
                deployment.spec.repo, body.tag, principal.organization
            )
        except SourceError as error:
            raise refusal_of_source(error) from error
        default, config = deployment.spec.default_staging, found.release.config
        links = replacement_links(self._cache.containers_of(principal.namespace))
        updater = self._updater_of(self._resolver.of_release(found))
        turns = asyncio.Semaphore(_CONCURRENT)

        async def attempt(one: CachedContainer) -> DeploymentResult | KubeError:
            changes = instance_update(one.container, body, config, default_staging=default)
            own = links.get(one.container.metadata.uid, NO_LINKS)
            async with turns:
                try:
                    return await self._update_one(principal, deployment, one, changes, updater, own)
                except KubeError as error:
                    return error

        results = list(await asyncio.gather(*map(attempt, targets)))
        refused = [each for each in results if isinstance(each, KubeError)]
        if refused and all(
            isinstance(each, KubeError) or each.error is not None for each in results
        ):
            # No update is known to be done, so that the whole request may be retried.
            raise refused[0]
        return [
            result_of(one, "failed", from_kube(each).message)
            if isinstance(each, KubeError)
            else each
            for one, each in zip(targets, results, strict=True)
        ]

    def _targets(
        self, principal: Principal, deployment: Deployment, wanted: list[str] | None
    ) -> list[CachedContainer]:
        """Return the targeted containers; of a replacement only the new one, unless named.

        Raises
        ------
        ApiError
            400 when the list is empty or names a container that is not in the deployment.
        """
        everything = self._cache.containers_of(principal.namespace)
        same, repo = self._cache.repositories.same, deployment.spec.repo
        own = [one for one in everything if same(one.container.spec.repo, repo)]
        if wanted is None:
            return not_replaced(own, replacement_links(everything))
        if not wanted:
            raise bad_request(
                "instance_ids", "instance_ids: is empty; leave it out to update all containers"
            )
        known = {one.id for one in own}
        unknown = sorted(set(wanted) - known)
        if unknown:
            raise bad_request(
                "instance_ids",
                f"instance_ids: {unknown[0]} is not a container of this deployment; remove it",
            )
        return [one for one in own if one.id in set(wanted)]

    async def _update_one(
        self,
        principal: Principal,
        deployment: Deployment,
        held: CachedContainer,
        changes: InstanceUpdate,
        updater: ContainerUpdater,
        links: ReplacementLinks,
    ) -> DeploymentResult:
        """Update one container, or return why it was not.

        Raises
        ------
        KubeError
            When the cluster refuses or does not respond.
        """
        state = shown_state(held.container)
        if state.updating:
            return result_of(held, "skipped", "update already in progress")
        if state.phase not in _SETTLED:
            return result_of(held, "skipped", "instance is not running")
        try:
            changed = await updater.relaunch(principal, held, changes)
        except ApiError as error:
            return result_of(held, "failed", error.message)
        record = container_record(changed, principal.organization, deployment, self._records, links)
        return result_of(held, "updating").model_copy(update={"container": record})

    def _with_id(self, principal: Principal, given: str) -> CachedResource[Deployment]:
        """Return the deployment with an identifier.

        Raises
        ------
        ApiError
            404 when the organization has none.
        """
        for held in self._shown(principal).values():
            if held.value.identifier == given:
                return held
        raise not_found("deployment")

    def _record(
        self,
        principal: Principal,
        held: CachedResource[Deployment],
        *,
        with_replaced: bool = False,
    ) -> DeploymentResponse:
        containers = self._cache.containers_of(principal.namespace)
        if not with_replaced:
            containers = not_replaced(containers, replacement_links(containers))
        return deployment_record(
            held, (one.container for one in containers), self._cache.repositories
        )


def instance_update(
    container: Container,
    body: UpdateDeploymentRequest,
    config: ServiceConfig | None,
    *,
    default_staging: bool,
) -> InstanceUpdate:
    """Return the update of one container. With more than one GPU the default counts as false.

    Such an update cannot wait for accept, which only an explicit true may refuse (spec 7.7).
    """
    resources = container.status.resources
    present = resources.gpus if resources is not None else 0
    wanted = gpu_count(config, container.spec.gpus) if config is not None else 0
    staging = body.staging
    if staging is None:
        staging = default_staging and max(present, wanted) <= 1
    return InstanceUpdate(tag=body.tag, relaunch_staging=staging)


def result_of(
    held: CachedContainer,
    status: Literal["updating", "skipped", "failed"],
    error: str | None = None,
) -> DeploymentResult:
    """Return the result of the update of one container.

    Parameters
    ----------
    error
        Why it was skipped or failed; None if it is updating.
    """
    return DeploymentResult(
        container_id=held.id, name=held.container.display_name, status=status, error=error
    )
