"""The facade's informer cache of custom resources, kept by reflectors; routes read from it.

A write is answered once the writer's own cache shows it; the header X-Consistency-Token of the
response has the version that a read at another replica waits for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

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
from cloister_crds.kinds.enclave import EnclavePhase
from cloister_crds.kinds.meta import Resource
from cloister_crds.lifecycle.admission.limits import (
    Place,
    may_have_pod,
    place_of,
    running_places,
)

__all__ = [
    "CachedContainer",
    "CachedEnclave",
    "CachedResource",
    "ClusterCache",
    "changed_at",
    "owners_of",
    "project_container",
    "project_enclave",
]

T = TypeVar("T", bound=Resource)


@dataclass(frozen=True, slots=True)
class CachedContainer:
    """A Container, and the metadata that the model does not keep."""

    container: Container
    """The object."""
    updated_at: str
    """When it last changed in any way, as the server writes times."""
    owners: Mapping[str, frozenset[str]]
    """Wire names of the fields of spec -> managers that set them."""
    pinned: bool = False
    """Whether If-Match named this version: a write must not change another one."""

    @property
    def version(self) -> str:
        """Its resourceVersion, which is the ETag of its record."""
        return self.container.metadata.resource_version

    @property
    def id(self) -> str:
        """Identifier in the API: the uid, or the one it had before a restore."""
        return self.container.identifier

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
    """When it last changed in any way, as the server writes times."""
    owners: Mapping[str, frozenset[str]]
    """Wire names of the fields of spec -> managers that set them."""


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
    """Return when an object last changed, by its managed fields."""
    meta = item["metadata"]
    managed = meta.get("managedFields") or []
    return str(max([meta["creationTimestamp"], *(p["time"] for p in managed if p.get("time"))]))


def owners_of(item: Mapping[str, Any], part: str = "spec") -> dict[str, frozenset[str]]:
    """Return which managers set the fields below a part of an object.

    Parameters
    ----------
    item
        The object.
    part
        Such as ``spec``, or ``data`` of a core Secret.
    """
    owners: dict[str, set[str]] = {}
    for entry in item["metadata"].get("managedFields") or []:
        if entry.get("subresource"):
            continue
        for key in (entry.get("fieldsV1") or {}).get(f"f:{part}", {}):
            owners.setdefault(key.removeprefix("f:"), set()).add(entry.get("manager", ""))
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
    token_digest: str
    """SHA-256 of its token in hexadecimal; empty = it has none."""
    node: str
    """Node that its Pod runs on; empty = none yet."""
    containers: tuple[str, ...]
    """Containers of its file."""
    cpus: int
    """Processors of the file."""
    memory_mb: int
    """Memory of the file in MB."""
    gpus: int
    """GPUs that it has."""
    container: str
    """Name of its Container."""
    container_uid: str
    """uid of its Container."""
    promoted_at: datetime | None
    """When it was promoted, in UTC; None = never."""
    demoted_at: datetime | None
    """When it was demoted, in UTC; None = never."""
    debug: bool
    """Whether it is a debug enclave."""
    deleting: bool
    """Whether it is being deleted."""
    finalizers: tuple[str, ...]
    """Finalizers that still block its deletion."""
    version: str
    """Its resourceVersion."""
    place: Place | None
    """Place of its Container under the limit, while it may have a Pod; None = it has none."""


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
        token_digest=enclave.spec.token_digest,
        node=enclave.status.node,
        containers=enclave.spec.summary.containers,
        cpus=enclave.spec.summary.cpus,
        memory_mb=enclave.spec.summary.memory_mb,
        gpus=enclave.spec.summary.gpus,
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
    )


class ClusterCache:
    """Reflectors of all kinds that the facade reads."""

    def __init__(self, client: KubeClient) -> None:
        self.containers = Reflector(client, of(Container), project_container)
        """Containers of all organizations."""
        self.organizations = Reflector(client, of(Organization), Organization.read)
        """Organizations."""
        self.enclaves = Reflector(client, of(Enclave), project_enclave)
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
        return sorted(held, key=creation_order)

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
        """Return the Deployments of a namespace by repository; of several the first by name."""
        found: dict[str, CachedResource[Deployment]] = {}
        entries = self.deployments.in_namespace(namespace)
        for name in sorted(entries):
            held = entries[name].value
            found.setdefault(held.value.spec.repo, held)
        return found

    def deployments_of(self, namespace: str) -> dict[str, Deployment]:
        """Return the Deployments of a namespace by repository, without their metadata."""
        return {repo: held.value for repo, held in self.cached_deployments(namespace).items()}

    def deployment_of(self, namespace: str, repo: str) -> Deployment | None:
        """Return the Deployment of a repository; None = there is none."""
        return self.deployments_of(namespace).get(repo)


def creation_order(held: CachedContainer) -> tuple[float, str]:
    """Return the sort key of Containers: creation, then uid."""
    meta = held.container.metadata
    created = meta.creation_timestamp
    return (created.timestamp() if created else 0.0, meta.uid)
