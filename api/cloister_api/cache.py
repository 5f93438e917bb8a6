"""The facade's informer cache of custom resources, kept by reflectors; routes read from it.

A write is answered once the writer's own cache shows it; the header X-Consistency-Token of the
response has the version that a read at another replica waits for.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from typing import Any, Generic, Self, TypeVar

from pydantic import Field
from typing_extensions import override

from cloister_clients.kube import KubeClient, Reflector
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import (
    Container,
    Deployment,
    Domain,
    Enclave,
    Host,
    HostnameClaim,
    Organization,
    RegistryCredential,
    Secret,
    SSHKey,
)
from cloister_crds.kinds.enclave import EnclavePhase, EnclaveStatus
from cloister_crds.kinds.meta import Resource
from cloister_crds.lifecycle.admission.limits import (
    Place,
    may_have_pod,
    place_of,
    running_places,
)
from cloister_crds.names import RepositoryNames, distinct_label, host_label

T = TypeVar("T", bound=Resource)

BY_NAMESPACE = "namespace"
"""Organizations by the namespace that they own."""
BY_LABEL = "label"
"""Organizations by their label in generated host names."""
BY_EARLIER_LABEL = "earlier label"
"""Organizations by the label that Containers of earlier releases keep in their host names."""
BY_MEMBER = "member"
"""Organizations by each user that they name."""
BY_HOSTNAME = "hostname"
"""Enclaves that may have a Pod by each host name that they serve."""
CREATION_ORDER = attrgetter("creation_order")
MICROSECONDS = 1_000_000
"""Of a second."""


@dataclass(frozen=True)
class CachedContainer:
    """A Container, and the metadata that the model does not keep."""

    container: Container
    """The object."""
    updated_at: str
    """When it last changed in any way (`changed_at`)."""
    owners: Mapping[str, frozenset[str]]
    """Wire names of the fields of spec -> managers that set them."""
    pinned: bool = False
    """Whether If-Match named this version: a write must not change another one."""
    moved_tag: str = ""
    """Warning of the action that returned it: the tag that it deploys has moved; empty if there is
    none."""

    @property
    def version(self) -> str:
        """Its resourceVersion, which is the ETag of its record."""
        return self.container.metadata.resource_version

    @property
    def id(self) -> str:
        """Identifier in the API: the uid, or the one it had before a restore."""
        return self.container.identifier

    @cached_property
    def creation_order(self) -> tuple[float, str]:
        """Sort key of Containers: creation, then uid."""
        meta = self.container.metadata
        created = meta.creation_timestamp
        return (created.timestamp() if created else 0.0, meta.uid)

    @property
    def managers(self) -> frozenset[str]:
        """Everyone who set a field of its spec."""
        return frozenset[str]().union(*self.owners.values())

    @property
    def going(self) -> bool:
        """Whether it is being deleted; the API shows it as stopping."""
        return self.container.metadata.deletion_timestamp is not None


@dataclass(frozen=True, slots=True)
class CachedResource(Generic[T]):
    """Any other object, and the metadata that the model does not keep."""

    value: T
    """The object."""
    updated_at: str
    """When it last changed in any way (`changed_at`)."""
    owners: Mapping[str, frozenset[str]]
    """Wire names of the fields of spec -> managers that set them."""


class OwnedOrganization(Organization):
    """An Organization, and who manages its fields."""

    owners: Mapping[str, frozenset[str]] = Field(default_factory=dict, exclude=True)
    """Wire names of the fields of spec -> managers that set them."""
    member_owners: Mapping[str, frozenset[str]] = Field(default_factory=dict, exclude=True)
    """Members -> managers that set a field of theirs."""

    @classmethod
    @override
    def read(cls, body: dict[str, Any]) -> Self:
        """Build the model from an object of the API.

        Raises
        ------
        pydantic.ValidationError
            When the object breaks a rule of the kind.
        """
        owners = {"owners": owners_of(body), "member_owners": member_owners_of(body)}
        return cls.model_validate({**body, **owners})


def project_container(item: dict[str, Any]) -> CachedContainer:
    """Build a `CachedContainer` from an object of the API server.

    Raises
    ------
    pydantic.ValidationError
        When the object breaks a rule of its kind.
    """
    return CachedContainer(Container.read(item), changed_at(item), owners_of(item))


def projection_of(kind: type[T]) -> Callable[[dict[str, Any]], CachedResource[T]]:
    """Return the function that builds a `CachedResource` from an object of a kind."""
    return lambda item: CachedResource(kind.read(item), changed_at(item), owners_of(item))


def changed_at(item: dict[str, Any]) -> str:
    """Return when an object last changed, by its managed fields, in microseconds.

    The server writes whole seconds. The fraction is not measured: it follows from the
    resourceVersion, which grows with each write, so that two changes in one second differ and every
    replica says the same of a version.
    """
    meta = item["metadata"]
    managed = meta.get("managedFields") or []
    latest = max([meta["creationTimestamp"], *(p["time"] for p in managed if p.get("time"))])
    fraction = int(meta["resourceVersion"]) % MICROSECONDS
    return f"{latest.removesuffix('Z')}.{fraction:06d}Z"


def owners_of(item: Mapping[str, Any], part: str = "spec") -> dict[str, frozenset[str]]:
    """Return which managers set the fields below a part of an object.

    Parameters
    ----------
    part
        Such as ``spec``, or ``data`` of a core Secret.
    """
    return _managers_by(
        (key.removeprefix("f:"), manager)
        for manager, fields in _managed_fields(item, part)
        for key in fields
    )


def member_owners_of(item: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Return which managers set the members of an Organization, by user."""
    return _managers_by(
        (str(json.loads(key.removeprefix("k:"))["user"]), manager)
        for manager, fields in _managed_fields(item, "spec")
        for key in fields.get("f:members", {})
        if key.startswith("k:")
    )


def _managed_fields(item: Mapping[str, Any], part: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield managers with the fields below a part that they set (FieldsV1)."""
    for entry in item["metadata"].get("managedFields") or []:
        if not entry.get("subresource"):
            fields = (entry.get("fieldsV1") or {}).get(f"f:{part}", {})
            yield entry.get("manager", ""), fields


def _managers_by(pairs: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    owners: dict[str, set[str]] = {}
    for name, manager in pairs:
        owners.setdefault(name, set()).add(manager)
    return {name: frozenset(managers) for name, managers in owners.items()}


@dataclass(frozen=True, slots=True)
class CachedEnclave:
    """What the facade needs of an Enclave."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    uid: str
    """Its uid."""
    live: bool
    """Whether it may still make requests: it was not deleted, has not failed or terminated."""
    hostnames: tuple[str, ...]
    """Every host name that it serves."""
    signed: bool
    """Whether it requests its certificate with a token of its Pod."""
    pod_uid: str
    """uid of its Pod; empty if none was seen yet."""
    containers: tuple[str, ...]
    """Containers of its file."""
    cpus: int
    """Processors of the file."""
    memory_mb: int
    """Memory of the file in MB."""
    gpus: int
    """GPUs that it has."""
    host: str
    """Name of its Host."""
    container: str
    """Name of its Container."""
    container_uid: str
    """uid of its Container."""
    promoted_at: datetime | None
    """When it was promoted, in UTC; None if never."""
    demoted_at: datetime | None
    """When it was demoted, in UTC; None if never."""
    debug: bool
    """Whether it is a debug enclave."""
    deleting: bool
    """Whether it is being deleted."""
    finalizers: tuple[str, ...]
    """Finalizers that still block its deletion."""
    version: str
    """Its resourceVersion."""
    place: Place | None
    """Place of its Container under the limit, while it may have a Pod; None if it has none."""
    revision: str
    """Name of its request."""
    attempt: int
    """Number of the attempt at the request, from 1."""
    tag: str
    """Tag of its release."""
    commit: str
    """Commit of the tag."""
    config_digest: str
    """Digest of its configuration file."""
    status: EnclaveStatus
    """Its status, with at most 32 stages of the boot and 64 containers."""


def project_enclave(item: dict[str, Any]) -> CachedEnclave:
    """Build a `CachedEnclave` from an object of the API server.

    Raises
    ------
    pydantic.ValidationError
        When the object breaks a rule of its kind.
    """
    enclave = Enclave.read(item)
    meta, phase = enclave.metadata, enclave.status.phase
    return CachedEnclave(
        namespace=meta.namespace or "",
        name=meta.name,
        uid=meta.uid,
        live=meta.deletion_timestamp is None
        and phase not in {EnclavePhase.FAILED, EnclavePhase.ENDED},
        hostnames=enclave.spec.served_names,
        signed=enclave.spec.signed_certificate,
        pod_uid=enclave.status.pod_uid,
        containers=enclave.spec.summary.containers,
        cpus=enclave.spec.summary.cpus,
        memory_mb=enclave.spec.summary.memory_mb,
        gpus=enclave.spec.summary.gpus,
        host=enclave.spec.host,
        container=enclave.spec.container.name,
        container_uid=enclave.spec.container.uid,
        promoted_at=enclave.status.promoted_at,
        demoted_at=enclave.status.demoted_at,
        debug=enclave.spec.debug,
        deleting=meta.deletion_timestamp is not None,
        finalizers=meta.finalizers,
        version=meta.resource_version,
        place=place_of(meta.creation_timestamp, enclave.spec.container.uid)
        if may_have_pod(enclave)
        else None,
        revision=enclave.spec.revision,
        attempt=enclave.spec.attempt,
        tag=enclave.spec.tag,
        commit=enclave.spec.commit,
        config_digest=enclave.spec.config_digest,
        status=enclave.status,
    )


class ClusterCache:
    """Reflectors of all kinds that the facade reads."""

    def __init__(self, client: KubeClient, repositories: RepositoryNames) -> None:
        self.repositories = repositories
        """How names of repositories are compared."""
        self.containers = Reflector(client, of(Container), project_container)
        """Containers of all organizations."""
        self.organizations: Reflector[Organization] = Reflector(
            client,
            of(Organization),
            OwnedOrganization.read,
            indexers={
                BY_NAMESPACE: lambda one: (one.spec.namespace,),
                BY_LABEL: lambda one: (host_label(one.metadata.name),),
                BY_EARLIER_LABEL: lambda one: (distinct_label(one.metadata.name),),
                BY_MEMBER: lambda one: tuple({member.user for member in one.spec.members}),
            },
        )
        """Organizations."""
        self.enclaves: Reflector[CachedEnclave] = Reflector(
            client,
            of(Enclave),
            project_enclave,
            indexers={BY_HOSTNAME: lambda one: one.hostnames if one.live or one.deleting else ()},
        )
        """Enclaves of all organizations."""
        self.hosts = Reflector(client, of(Host), Host.read)
        """Hosts."""
        self.deployments = Reflector(client, of(Deployment), projection_of(Deployment))
        """Deployments of all organizations."""
        self.secrets = Reflector(client, of(Secret), Secret.read)
        """Secrets (csec) of all organizations; their values are in core Secrets."""
        self.ssh_keys = Reflector(client, of(SSHKey), SSHKey.read)
        """SSHKeys of all organizations."""
        self.registry_credentials = Reflector(
            client, of(RegistryCredential), RegistryCredential.read
        )
        """RegistryCredentials of all organizations; their values are in core Secrets."""
        self.domains = Reflector(client, of(Domain), Domain.read)
        """Domains of all organizations."""
        self.claims = Reflector(client, of(HostnameClaim), HostnameClaim.read)
        """Claims of host names."""

    @property
    def all(self) -> tuple[Reflector[Any], ...]:
        """Every reflector, to be run."""
        return (
            self.containers,
            self.organizations,
            self.enclaves,
            self.hosts,
            self.deployments,
            self.secrets,
            self.ssh_keys,
            self.registry_credentials,
            self.domains,
            self.claims,
        )

    @property
    def ready(self) -> bool:
        """Whether every reflector has been filled once."""
        return all(reflector.ready for reflector in self.all)

    def host_list(self) -> tuple[Host, ...]:
        """Return all Hosts by name."""
        hosts = (entry.value for entry in self.hosts.all())
        return tuple(sorted(hosts, key=lambda host: host.metadata.name))

    def containers_of(self, namespace: str) -> list[CachedContainer]:
        """Return the Containers of a namespace, oldest first; deleting ones are `going`."""
        held = (entry.value for entry in self.containers.in_namespace(namespace).values())
        return sorted(held, key=CREATION_ORDER)

    def running_of(self, namespace: str) -> dict[str, Place]:
        """Return places by uid of the Containers that may have a Pod, gone ones included."""
        entries = self.enclaves.in_namespace(namespace).values()
        return running_places(each.value.place for each in entries if each.value.place)

    def secrets_of(self, namespace: str) -> tuple[Secret, ...]:
        """Return the Secrets (csec) of a namespace."""
        return tuple(entry.value for entry in self.secrets.in_namespace(namespace).values())

    def ssh_keys_of(self, namespace: str) -> tuple[SSHKey, ...]:
        """Return the SSHKeys of a namespace."""
        return tuple(entry.value for entry in self.ssh_keys.in_namespace(namespace).values())

    def registry_credentials_of(self, namespace: str) -> tuple[RegistryCredential, ...]:
        """Return the RegistryCredentials of a namespace."""
        entries = self.registry_credentials.in_namespace(namespace).values()
        return tuple(entry.value for entry in entries)

    def domains_of(self, namespace: str) -> tuple[Domain, ...]:
        """Return the Domains of a namespace."""
        return tuple(entry.value for entry in self.domains.in_namespace(namespace).values())

    def cached_deployments(self, namespace: str) -> dict[str, CachedResource[Deployment]]:
        """Return the Deployments of a namespace by `RepositoryNames.key`.

        Of several the first by name.
        """
        found: dict[str, CachedResource[Deployment]] = {}
        entries = self.deployments.in_namespace(namespace)
        for name in sorted(entries):
            held = entries[name].value
            found.setdefault(self.repositories.key(held.value.spec.repo), held)
        return found

    def deployments_of(self, namespace: str) -> dict[str, Deployment]:
        """Return the Deployments of a namespace by `RepositoryNames.key`."""
        return {repo: held.value for repo, held in self.cached_deployments(namespace).items()}

    def deployment_of(self, namespace: str, repo: str) -> Deployment | None:
        """Return the Deployment of a repository; None if there is none."""
        held = self.cached_deployments(namespace).get(self.repositories.key(repo))
        return held.value if held is not None else None
