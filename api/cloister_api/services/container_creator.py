"""POST /api/containers: from a checked body to a claim, a Deployment and a Container.

The order makes each step harmless alone: whatever is left by a create that was interrupted is
adopted by its repetition, or swept by the operator. Nothing is written before everything that can
be known has been checked.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cloister_api.auth.authenticator import Principal
from cloister_api.cache import CachedContainer, ClusterCache
from cloister_api.errors import ApiError, conflict, forbidden, unavailable
from cloister_api.records.container import ASKED_ANNOTATION, asked_resources
from cloister_api.schemas.containers import CreateContainerRequest
from cloister_api.services.claims import HostnameClaims
from cloister_api.services.container_reader import ContainerReader
from cloister_api.services.idempotency import CreateRequest, IdempotentRequests
from cloister_api.services.replacements import REPLACES_ANNOTATION, Replacements
from cloister_api.services.resolution import ReleaseResolver, refuse_denied
from cloister_api.services.specs import spec_of
from cloister_clients.kube import AlreadyExists, Invalid, KubeClient, NotFound
from cloister_clients.kube.errors import BadRequest
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, Deployment, Enclave
from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.kinds.deployment import DeploymentSpec
from cloister_crds.kinds.hostnameclaim import ClaimHolder
from cloister_crds.kinds.meta import ObjectMeta
from cloister_crds.lifecycle.admission.limits import counted
from cloister_crds.lifecycle.admission.validation import Question, spec_problems
from cloister_crds.names import (
    CONTAINER_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    ORGANIZATION_LABEL,
    deployment_name,
    generated_hostname,
    host_label,
    object_name,
    service_name,
)

__all__ = ["ContainerCreator", "CreatedContainer"]


@dataclass(frozen=True, slots=True)
class CreatedContainer:
    """A Container that was made."""

    held: CachedContainer
    """The Container."""
    version: str
    """Its resourceVersion, for reads at other replicas."""


class ContainerCreator:
    """Creates containers."""

    def __init__(
        self,
        *,
        client: KubeClient,
        cache: ClusterCache,
        reader: ContainerReader,
        resolver: ReleaseResolver,
        claims: HostnameClaims,
        idempotency: IdempotentRequests,
        replacements: Replacements,
        containers_domain: str,
    ) -> None:
        self._client = client
        self._cache = cache
        self._reader = reader
        self._resolver = resolver
        self._claims = claims
        self._idempotency = idempotency
        self.replacements = replacements
        """What creates replace, and its end."""
        self._domain = containers_domain

    async def create(
        self, principal: Principal, body: CreateContainerRequest, retry_key: str | None
    ) -> CreatedContainer:
        """Create a container.

        Parameters
        ----------
        principal
            Who asks.
        body
            What is asked for.
        retry_key
            Idempotency-Key of the client; None = none was sent.

        Returns
        -------
        Made
            The Container, which this facade's copy shows.

        Raises
        ------
        ApiError
            402, 403, 409, 400 or 503 as the checks say.
        KubeError
            When the cluster refuses or does not answer.
        """
        content = body.model_dump(mode="json", by_alias=True)
        request = CreateRequest.of(principal, content, retry_key, "container.create")
        namesakes = self._cache.containers_of(principal.namespace)
        same_name = [one for one in namesakes if is_named(one, body)]
        earlier = await self._earlier(same_name, request)
        if earlier is not None:
            return earlier
        replaced = await self.replacements.replaced(principal, body.replaces, namesakes)
        question = self._question(principal, body, namesakes, replaced)
        refuse_denied(spec_problems(question))
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
        found = await self._resolver.approve(question)
        spec = question.spec.model_copy(update={"commit": found.release.commit})
        manifest = manifest_of(
            name,
            principal.namespace,
            spec,
            {
                **request.annotations,
                ASKED_ANNOTATION: asked_resources(found.release.config),
                **replaces_annotation(replaced),
            },
        )
        names = (hostname, body.custom_domain) if body.custom_domain else (hostname,)
        await self._write(principal, manifest, names, holder, before, body.repo)
        try:
            item = await self._client.create(of(Container), manifest)
        except AlreadyExists as error:
            return await self._already_made(principal, name, body, request, error)
        await self._stay_within_limit(principal, item)
        held = await self._reader.written(item)
        return CreatedContainer(held, item["metadata"]["resourceVersion"])

    async def _earlier(
        self, same_name: list[CachedContainer], request: CreateRequest
    ) -> CreatedContainer | None:
        """Find the Container that an unanswered try of the same request has made."""
        for held in same_name:
            meta = held.container.metadata
            if await self._idempotency.made(meta, request):
                return CreatedContainer(held, meta.resource_version)
        return None

    def _question(
        self,
        principal: Principal,
        body: CreateContainerRequest,
        others: list[CachedContainer],
        replaced: CachedContainer | None,
    ) -> Question:
        counting = counted(held.container for held in others)
        old = replaced.container.metadata if replaced is not None else None
        return Question(
            name=body.name,
            spec=spec_of(body, replaces=old.name if old is not None else None),
            organization=principal.organization,
            hosts=self._cache.host_list(),
            secrets=self._cache.secrets_of(principal.namespace),
            ssh_keys=self._cache.ssh_keys_of(principal.namespace),
            domains=self._cache.domains_of(principal.namespace),
            rank=sum(old is None or one.metadata.uid != old.uid for one in counting),
        )

    async def _refuse_taken(
        self, hostname: str, holder: ClaimHolder, before: ClaimHolder | None
    ) -> None:
        """Refuse a host name that another one holds, or that an earlier container still uses.

        One that the container has which is replaced passes over later.

        Raises
        ------
        ApiError
            409.
        """
        present = await self._claims.holder(hostname)
        if present is not None and present not in (holder, before):
            raise conflict(
                f"the host name {hostname} is taken; choose another name, or try again when the "
                "container that had it is gone"
            )
        label = f"{CONTAINER_LABEL}={service_name(holder.name)}"
        left = await self._client.list(
            of(Enclave), holder.namespace, label_selector=label, metadata_only=True
        )
        if left.items:
            raise conflict(
                f"the earlier container of this name is still being torn down and {hostname} is "
                "taken until then; try again shortly"
            )

    async def _write(
        self,
        principal: Principal,
        manifest: dict[str, Any],
        hostnames: tuple[str, ...],
        holder: ClaimHolder,
        before: ClaimHolder | None,
        repo: str,
    ) -> None:
        """Make the claims and the Deployment, once the server would take the Container.

        Raises
        ------
        ApiError
            400 when the server would not take it, 409 when a host name is taken, 503 while the
            namespace is missing.
        """
        try:
            await self._client.create(of(Container), manifest, dry_run=True)
        except (Invalid, BadRequest) as error:
            raise ApiError(400, "BAD_REQUEST", error.message) from error
        except AlreadyExists:
            # Somebody was faster, perhaps an earlier try of this request: the real POST tells.
            pass
        except NotFound as error:
            raise unavailable(
                f"the namespace {principal.namespace} of the organization does not exist yet; "
                "try again when the Organization is Ready"
            ) from error
        for hostname in hostnames:
            if before is None or await self._claims.holder(hostname) != before:
                await self._claims.claim(hostname, holder)
        deployment = Deployment(
            metadata=ObjectMeta(
                name=deployment_name(repo),
                namespace=principal.namespace,
                labels={
                    MANAGED_BY_LABEL: MANAGED_BY,
                    ORGANIZATION_LABEL: host_label(principal.slug),
                },
            ),
            spec=DeploymentSpec(repo=repo),
        )
        if self._cache.deployment_of(principal.namespace, repo) is None:
            try:
                made = await self._client.create(of(Deployment), deployment.manifest())
            except AlreadyExists:
                return
            version = made["metadata"]["resourceVersion"]
            await self._cache.deployments.reached(version, within=1.0)

    async def _already_made(
        self,
        principal: Principal,
        name: str,
        body: CreateContainerRequest,
        request: CreateRequest,
        error: AlreadyExists,
    ) -> CreatedContainer:
        """Tell an earlier try of this request, seen by another replica, from another's Container.

        Raises
        ------
        ApiError
            409 when it is another's.
        """
        present = await self._reader.now(principal.namespace, name)
        made = await self._earlier([present], request)
        if made is not None:
            return made
        raise name_taken(body) from error

    async def _stay_within_limit(self, principal: Principal, item: dict[str, Any]) -> None:
        """Take the own Container back when it does not fit under the limit.

        What counts are the Containers that were there when the server took this one: its writes
        have one order, so that of creates at the same moment exactly those remain that fit, and
        none waits for another. Times of creation would not do, which are whole seconds.

        Raises
        ------
        ApiError
            403 "quota reached".
        """
        own = Container.read(item).metadata
        most = principal.organization.spec.limits.containers
        present = await self._reader.list_now(principal.namespace, at=own.resource_version)
        if len(counted(held.container for held in present)) <= most:
            return
        with suppress(NotFound):
            await self._client.delete(of(Container), own.name, principal.namespace, uid=own.uid)
        raise forbidden(
            f"quota reached: the organization may have {most} containers (stopped ones count); "
            "delete one or ask the administrator for more"
        )


def manifest_of(
    name: str, namespace: str, spec: ContainerSpec, annotations: dict[str, str]
) -> dict[str, Any]:
    """Return the Container as it is sent to the server."""
    meta = ObjectMeta(name=name, namespace=namespace, annotations=annotations)
    return Container(metadata=meta, spec=spec).manifest()


def holder_of(replaced: CachedContainer | None) -> ClaimHolder | None:
    """Return the holder of the host names that pass over; None = none do."""
    if replaced is None:
        return None
    meta = replaced.container.metadata
    return ClaimHolder(namespace=meta.namespace or "", name=meta.name)


def replaces_annotation(replaced: CachedContainer | None) -> dict[str, str]:
    """Return the annotation by which the container that was replaced is deleted later."""
    return {} if replaced is None else {REPLACES_ANNOTATION: replaced.container.metadata.uid}


def is_named(held: CachedContainer, body: CreateContainerRequest) -> bool:
    """Return whether a container has the name that a body asks for."""
    container = held.container
    return container.display_name == body.name and container.spec.debug is body.debug


def name_taken(body: CreateContainerRequest) -> ApiError:
    """409: the organization has a container of that name."""
    return conflict(
        f"the organization has a {'debug ' if body.debug else ''}container named {body.name}; "
        "choose another name or delete it first"
    )
