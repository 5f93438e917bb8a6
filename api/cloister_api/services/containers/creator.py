"""POST /api/containers.

From a valid body to the claim of its host name, a Deployment and a Container.
"""

from contextlib import suppress
from typing import Any

from cloister_api.auth.authenticator import Principal
from cloister_api.cache import CachedContainer, project_container
from cloister_api.errors import ApiError, conflict, forbidden, unavailable
from cloister_api.records.container import ASKED_ANNOTATION, asked_resources
from cloister_api.schemas.containers import CreateContainerRequest
from cloister_api.services.containers.reader import ContainerReader
from cloister_api.services.containers.refusals import facts_of_create, require_subscription
from cloister_api.services.containers.replacements import REPLACES_ANNOTATION, Replacements
from cloister_api.services.containers.resolution import ReleaseResolver, admitted_problems
from cloister_api.services.containers.specs import spec_of
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.services.preconditions import CreateRequest, IdempotentRequests
from cloister_clients.kube import AlreadyExists, Invalid, NotFound
from cloister_clients.kube.errors import BadRequest
from cloister_clients.kube.kinds import of
from cloister_clients.tracing.spans import traceparent
from cloister_crds.config import ServiceConfig
from cloister_crds.kinds import Container, Deployment, Enclave, HostnameClaim
from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.kinds.deployment import DeploymentSpec
from cloister_crds.kinds.hostnameclaim import ClaimHolder, HostnameClaimSpec
from cloister_crds.kinds.meta import GROUP, ObjectMeta
from cloister_crds.lifecycle.admission.host_requirements import gpu_count
from cloister_crds.lifecycle.admission.limits import counted
from cloister_crds.lifecycle.tracing import FIRST_GENERATION, trace_annotation
from cloister_crds.names import (
    CONTAINER_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    ORGANIZATION_LABEL,
    deployment_name,
    distinct_label,
    generated_hostname,
    object_name,
    service_name,
)

ADOPTED_ANNOTATION = f"{GROUP}/adopted-at"
"""When a create adopted its own earlier claim: the new resourceVersion keeps the operator from
releasing a claim that it had found orphaned a moment before."""


class HostnameClaims:
    """The claims of the cluster."""

    def __init__(self, base: Infrastructure) -> None:
        self._client, self._clock = base.client, base.clock

    async def holder(self, hostname: str) -> ClaimHolder | None:
        """Return the holder of a host name; None if it is free.

        Raises
        ------
        KubeError
            When the cluster does not respond.
        """
        try:
            found = await self._client.get(of(HostnameClaim), hostname)
        except NotFound:
            return None
        return HostnameClaim.read(found).spec.holder

    async def claim(self, hostname: str, holder: ClaimHolder) -> None:
        """Claim a host name for a Container, or adopt the claim that it already holds.

        Parameters
        ----------
        holder
            The Container, which need not exist yet.

        Raises
        ------
        ApiError
            409 when another Container holds it.
        KubeError
            When the cluster refuses or does not respond.
        """
        claim = HostnameClaim(
            metadata=ObjectMeta(name=hostname), spec=HostnameClaimSpec(holder=holder)
        )
        for _ in range(3):
            try:
                await self._client.create(of(HostnameClaim), claim.manifest())
            except AlreadyExists:
                if await self._adopt(hostname, holder):
                    return
            else:
                return
        raise hostname_taken(hostname)

    async def _adopt(self, hostname: str, holder: ClaimHolder) -> bool:
        present = await self.holder(hostname)
        if present is None:
            return False
        if present != holder:
            raise hostname_taken(hostname)
        patch = {"metadata": {"annotations": {ADOPTED_ANNOTATION: self._clock().isoformat()}}}
        try:
            await self._client.merge_patch(of(HostnameClaim), hostname, patch)
        except NotFound:
            return False
        return True


def hostname_taken(hostname: str) -> ApiError:
    """Build a 409: the host name has another holder."""
    return conflict(
        f"the host name {hostname} is taken; choose another name, or try again when the container "
        "that had it is gone"
    )


class ContainerCreator:
    """Creates containers."""

    def __init__(
        self,
        base: Infrastructure,
        reader: ContainerReader,
        resolver: ReleaseResolver,
        claims: HostnameClaims,
        replacements: Replacements,
    ) -> None:
        self._client, self._cache = base.client, base.cache
        self._reader = reader
        self._resolver = resolver
        self._claims = claims
        self._idempotency = IdempotentRequests(base)
        self.replacements = replacements
        """Finds and deletes replaced containers."""
        self._domain = base.installation.containers_domain

    async def create(
        self, principal: Principal, body: CreateContainerRequest, retry_key: str | None
    ) -> CachedContainer:
        """Create a container, and wait until this facade's cache shows it.

        Parameters
        ----------
        retry_key
            Idempotency-Key of the client; None if none was sent.

        Raises
        ------
        ApiError
            402, 403, 409, 400 or 503 as the checks find.
        KubeError
            When the cluster refuses or does not respond.
        """
        content = body.model_dump(mode="json", by_alias=True)
        request = CreateRequest.of(principal, content, retry_key, "container.create")
        namesakes = self._cache.containers_of(principal.namespace)
        same_name = [one for one in namesakes if is_named(one, body)]
        earlier = await self._earlier(same_name, request)
        if earlier is not None:
            return earlier
        require_subscription(principal.organization)
        replaced = await self.replacements.replaced(principal, body.replaces, namesakes)
        old = replaced.container.metadata.name if replaced is not None else None
        spec = spec_of(body, replaces=old)
        facts = facts_of_create(self._cache, principal, body.name, spec, replaced)
        problems = admitted_problems(facts)
        if any(replaced is None or one.id != replaced.id for one in same_name):
            raise name_taken(body)
        taken = {one.container.metadata.name for one in namesakes}
        name = object_name(body.name, debug=body.debug, taken=taken)
        holder = ClaimHolder(namespace=principal.namespace, name=name)
        hostname = generated_hostname(
            body.name,
            organization=principal.slug,
            debug=body.debug,
            containers_domain=self._domain,
        )
        before = holder_of(replaced)
        await self._refuse_taken(hostname, holder, before)
        found = await self._resolver.approve(facts, problems)
        manifest = manifest_of(
            name,
            principal.namespace,
            spec.model_copy(
                update={
                    "commit": found.release.commit,
                    "staging": self._staging(principal, spec, found.release.config),
                }
            ),
            {
                **request.annotations,
                ASKED_ANNOTATION: asked_resources(found.release.config),
                **replaces_annotation(replaced),
                **trace_annotation(traceparent(), FIRST_GENERATION),
            },
        )
        await self._require_accepted(principal, manifest)
        domain = body.custom_domain
        if domain and (before is None or await self._claims.holder(domain) != before):
            await self._claims.claim(domain, holder)
        await self._ensure_deployment(principal, body.repo)
        try:
            item = await self._client.create(of(Container), manifest)
        except AlreadyExists as error:
            return await self._already_made(principal, name, body, request, error)
        held = project_container(item)
        await self._stay_within_limit(principal, held)
        await self._reader.until_shown(held)
        await self._reader.until_deployment_shown(principal.namespace, body.repo)
        return held

    def _staging(
        self, principal: Principal, spec: ContainerSpec, config: ServiceConfig | None
    ) -> bool | None:
        """Return staging as the body says it, else the deployment's present default.

        A later change of the default is not for containers that exist. More than one GPU cannot be
        staged (spec 22.4).
        """
        if spec.staging is not None or config is None:
            return spec.staging
        deployment = self._cache.deployment_of(principal.namespace, spec.repo)
        default = deployment is not None and deployment.spec.default_staging
        return default and gpu_count(config, spec.gpus) <= 1

    async def _earlier(
        self, same_name: list[CachedContainer], request: CreateRequest
    ) -> CachedContainer | None:
        """Find the Container that an earlier, unanswered attempt of the same request created."""
        for held in same_name:
            if await self._idempotency.was_created_by(held.container, request):
                return held
        return None

    async def _refuse_taken(
        self, hostname: str, holder: ClaimHolder, before: ClaimHolder | None
    ) -> None:
        """Refuse a host name that another container holds, or that an earlier one still uses.

        Raises
        ------
        ApiError
            409.
        """
        present = await self._claims.holder(hostname)
        if present is not None and present not in (holder, before):
            raise hostname_taken(hostname)
        label = f"{CONTAINER_LABEL}={service_name(holder.name)}"
        left = await self._client.list(
            of(Enclave), holder.namespace, label_selector=label, metadata_only=True
        )
        if left.items:
            raise conflict(
                f"the earlier container of this name is still being torn down and {hostname} is "
                "taken until then; try again shortly"
            )

    async def _require_accepted(self, principal: Principal, manifest: dict[str, Any]) -> None:
        """Check by a dry run that the API server accepts the Container.

        Raises
        ------
        ApiError
            400 when it does not, 503 while the namespace is missing.
        """
        try:
            await self._client.create(of(Container), manifest, dry_run=True)
        except (Invalid, BadRequest) as error:
            raise ApiError(400, "BAD_REQUEST", error.message) from error
        except AlreadyExists:
            # Another create was faster, perhaps an earlier attempt of this one: the real POST
            # finds out.
            pass
        except NotFound as error:
            raise unavailable(
                f"the namespace {principal.namespace} of the organization does not exist yet; "
                "try again when the Organization is Ready"
            ) from error

    async def _ensure_deployment(self, principal: Principal, repo: str) -> None:
        """Create the Deployment of a repository unless there is one."""
        if self._cache.deployment_of(principal.namespace, repo) is not None:
            return
        deployment = Deployment(
            metadata=ObjectMeta(
                name=deployment_name(self._cache.repositories.key(repo)),
                namespace=principal.namespace,
                labels={
                    MANAGED_BY_LABEL: MANAGED_BY,
                    ORGANIZATION_LABEL: distinct_label(principal.slug),
                },
            ),
            spec=DeploymentSpec(repo=repo),
        )
        with suppress(AlreadyExists):
            await self._client.create(of(Deployment), deployment.manifest())

    async def _already_made(
        self,
        principal: Principal,
        name: str,
        body: CreateContainerRequest,
        request: CreateRequest,
        error: AlreadyExists,
    ) -> CachedContainer:
        """Return the Container that an earlier attempt of this request created elsewhere.

        Raises
        ------
        ApiError
            409 when another request created it.
        """
        present = await self._reader.now(principal.namespace, name)
        made = await self._earlier([present], request)
        if made is not None:
            return made
        raise name_taken(body) from error

    async def _stay_within_limit(self, principal: Principal, held: CachedContainer) -> None:
        """Delete the created Container again if it exceeds the limit.

        The Containers that existed when the server accepted this one are counted: its writes have
        a total order, so that of concurrent creates exactly those that fit remain, and none waits
        for another. Creation times would not do: they are whole seconds.

        Raises
        ------
        ApiError
            403 "quota reached".
        """
        own = held.container.metadata
        most = principal.organization.spec.limits.containers
        present = await self._reader.list_now(principal.namespace, at=own.resource_version)
        running = self._cache.running_of(principal.namespace)
        if len(counted((each.container for each in present), running)) <= most:
            return
        with suppress(NotFound):
            await self._client.delete(of(Container), own.name, principal.namespace, uid=own.uid)
        # A list right after the refusal would otherwise show it: creation first, then deletion.
        await self._reader.until_shown(held)
        await self._reader.until_deleted(own.uid)
        raise forbidden(
            f"quota reached: the organization may have {most} containers (stopped ones "
            "count, and deleted ones until their last Pod is gone); delete one or ask the "
            "administrator for more"
        )


def manifest_of(
    name: str, namespace: str, spec: ContainerSpec, annotations: dict[str, str]
) -> dict[str, Any]:
    """Build the Container as it is sent to the server."""
    meta = ObjectMeta(name=name, namespace=namespace, annotations=annotations)
    return Container(metadata=meta, spec=spec).manifest()


def holder_of(replaced: CachedContainer | None) -> ClaimHolder | None:
    """Return the holder of the host names that are handed over; None if none are."""
    if replaced is None:
        return None
    meta = replaced.container.metadata
    return ClaimHolder(namespace=meta.namespace or "", name=meta.name)


def replaces_annotation(replaced: CachedContainer | None) -> dict[str, str]:
    """Return the annotation by which the replaced container is deleted later."""
    return {} if replaced is None else {REPLACES_ANNOTATION: replaced.container.metadata.uid}


def is_named(held: CachedContainer, body: CreateContainerRequest) -> bool:
    """Return whether a container has the name that a body requests."""
    container = held.container
    return container.display_name == body.name and container.spec.debug is body.debug


def name_taken(body: CreateContainerRequest) -> ApiError:
    """Build a 409: the organization has a container of that name."""
    return conflict(
        f"the organization has a {'debug ' if body.debug else ''}container named {body.name}; "
        "choose another name or delete it first"
    )
