"""The observed state of a Container: frozen facts, gathered by the operator for `decide`.

Nothing here does I/O: everything in an `Observed` was read before. Facts from outside the cluster
(a release, an image) are in `Observed.results` under the `Need` that requests them; a need without
a result was not looked up yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

from cloister_crds.config.limits import CPU_TIERS, GPU_COUNTS, MEMORY_TIERS
from cloister_crds.config.model import ServiceConfig
from cloister_crds.installation import MAX_IMAGE_BYTES
from cloister_crds.kinds.container import Container, LatestRelease
from cloister_crds.kinds.deployment import Deployment
from cloister_crds.kinds.domain import Domain
from cloister_crds.kinds.enclave import Enclave
from cloister_crds.kinds.host import Host
from cloister_crds.kinds.hostnameclaim import HostnameClaim
from cloister_crds.kinds.organization import Organization
from cloister_crds.kinds.registrycredential import RegistryCredential
from cloister_crds.kinds.secret import Secret
from cloister_crds.kinds.sshkey import SSHKey
from cloister_crds.names import RepositoryNames
from cloister_crds.problems import Problem

__all__ = [
    "DecisionSettings",
    "DnsFacts",
    "Failed",
    "Gateway",
    "Known",
    "LookupResult",
    "Need",
    "NeedDns",
    "NeedImage",
    "NeedLatest",
    "NeedRelease",
    "NeedSecretValues",
    "NewestRelease",
    "Observed",
    "RegistryImage",
    "ReleaseFacts",
    "RouteFacts",
    "RouteState",
    "SecretRefKey",
    "SecretValues",
    "ServiceFacts",
    "Tiers",
]

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Known(Generic[T_co]):
    """A lookup that succeeded."""

    value: T_co
    """The result."""
    at: datetime
    """When it was looked up, in UTC."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A lookup that failed."""

    reason: str
    """Reason from the reasons table (`cloister_crds.lifecycle.state.reasons`)."""
    message: str
    """Sentence for people: what could not be looked up and what to do."""
    transient: bool
    """Whether a retry may help."""
    at: datetime
    """When it failed, in UTC."""
    retry_at: datetime | None = None
    """When to retry at the earliest, in UTC (the resolver's backoff); None for what is not
    transient."""


@dataclass(frozen=True, slots=True)
class ReleaseFacts:
    """A release and its configuration file, parsed once by the resolver."""

    repo: str
    """``owner/name``."""
    tag: str
    """Tag of the release."""
    commit: str
    """Commit that the file was read at, 40 hex digits: that of the tag, or a kept one."""
    published: datetime
    """When it was published, in UTC."""
    file_name: str
    """Name under which the file was found."""
    raw: bytes
    """The file's bytes; what is measured and mounted."""
    digest: str
    """``sha256:`` and the hash of `raw`."""
    config: ServiceConfig | None
    """The normalised file; None when it has errors."""
    problems: tuple[Problem, ...] = ()
    """Errors and warnings of the file."""
    unenforced: tuple[str, ...] = ()
    """Fields of the file that the operator's Pods cannot enforce, in its order."""
    tag_commit: str = ""
    """Commit that the tag points to; empty means `commit`."""


@dataclass(frozen=True, slots=True)
class RegistryImage:
    """An image as its registry describes it."""

    image: str
    """Reference with digest, as the kubelet pulls it."""
    entrypoint: tuple[str, ...] | None = None
    """ENTRYPOINT of the image; None if not set."""
    cmd: tuple[str, ...] | None = None
    """CMD of the image; None if not set."""
    env: tuple[str, ...] = ()
    """ENV of the image, ``NAME=value``."""
    user: str = ""
    """USER of the image; empty means root."""
    working_dir: str = ""
    """WORKDIR of the image; empty means /."""
    stop_signal: str = ""
    """STOPSIGNAL of the image; empty means SIGTERM."""
    size: int = 0
    """Bytes of all of these as JSON."""
    pulled: int = 0
    """Bytes of configuration and layers as they are pulled."""


@dataclass(frozen=True, slots=True, order=True)
class SecretRefKey:
    """A key of a core Secret that holds the value of a name in the file."""

    name: str
    """Name in the file, such as ``OPENAI_API_KEY``."""
    secret: str
    """Name of the core Secret, in the Container's namespace."""
    key: str
    """Key in it."""


@dataclass(frozen=True, slots=True)
class SecretValues:
    """Whether the values of secrets can be used; the values themselves are never here."""

    missing: tuple[SecretRefKey, ...] = ()
    """Those whose core Secret or key does not exist."""
    unusable: tuple[tuple[SecretRefKey, str], ...] = ()
    """Those whose value cannot be a variable, and why (`secret_values.value_error`)."""


@dataclass(frozen=True, slots=True)
class DnsFacts:
    """The records of a custom domain, from the name servers of its zone."""

    texts: tuple[str, ...] = ()
    """Values of the TXT records."""
    aliases: tuple[str, ...] = ()
    """Targets of the CNAME record; several while the servers differ."""
    request: str = ""
    """`NeedDns.request` of the lookup; a later request is for the next one."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """The sizes that an organization's files may request (config: "tier lists")."""

    cpus: tuple[int, ...] = CPU_TIERS
    """Values of ``cpus``, ascending."""
    memory: tuple[int, ...] = MEMORY_TIERS
    """Values of ``memory`` in MB, ascending."""
    gpus: tuple[int, ...] = GPU_COUNTS
    """Values of ``gpus`` when it is set, ascending."""

    @classmethod
    def of(cls, organization: Organization | None) -> "Tiers":
        """Return the sizes of an Organization; those of the format where there is none."""
        if organization is None:
            return cls()
        limits = organization.spec.limits
        return cls(
            tuple(sorted(limits.cpus)), tuple(sorted(limits.memory)), tuple(sorted(limits.gpus))
        )


@dataclass(frozen=True, slots=True)
class NeedRelease:
    """Look up a release and its file at the source provider. The result is `ReleaseFacts`."""

    repo: str
    """``owner/name``."""
    tag: str
    """Tag of the release."""
    commit: str | None
    """Commit that the tag must point to; None means wherever it points."""
    request: str
    """Revision of the request: the result of an earlier request does not count (the resolver may
    share what is in flight or seconds old)."""
    tiers: Tiers = Tiers()
    """Sizes that the file may request."""
    kept: bool = False
    """Whether the commit was deployed from the tag before, and is read even if the tag moved."""


@dataclass(frozen=True, slots=True)
class NeedImage:
    """Look up an image in its registry. The result is `RegistryImage`."""

    image: str
    """Reference with digest, as the file has it."""
    platform: str
    """Platform such as ``linux/amd64``."""
    namespace: str
    """Namespace of the organization, with the core Secrets of its credentials."""
    credentials: tuple[SecretRefKey, ...]
    """Credentials of the organization, named by registry; ordered."""
    request: str
    """Revision of the request; see `NeedRelease.request`."""


@dataclass(frozen=True, slots=True)
class NeedSecretValues:
    """Check whether the values of secrets can be read. The result is `SecretValues`."""

    namespace: str
    """Namespace of the core Secrets."""
    refs: tuple[SecretRefKey, ...]
    """What must exist, ordered."""
    request: str
    """Revision of the request; see `NeedRelease.request`."""


@dataclass(frozen=True, slots=True)
class NeedDns:
    """Look up the records of a custom domain at the zone's servers. The result is `DnsFacts`."""

    domain: str
    """The custom domain, whose CNAME record is looked up."""
    txt_name: str
    """Name of the TXT record."""
    since: str
    """When the Domain was checked before; so a Domain has one lookup at a time."""
    request: str = field(default="", compare=False)
    """The request ("check now") that was known when the lookup began."""


@dataclass(frozen=True, slots=True)
class NewestRelease:
    """The newest published release of a repository."""

    newest: LatestRelease | None
    """The release; None if the repository has none."""
    than_published: datetime | None = None
    """When the release that it is compared with was published, in UTC; None if that is not
    published, or is the newest itself, or nothing is compared."""
    than_commit: str = ""
    """Commit that the tag of that release points to; empty if not known."""


@dataclass(frozen=True, slots=True)
class NeedLatest:
    """Look up the newest release at the source provider. The result is `NewestRelease`."""

    repo: str
    """``owner/name``."""
    than: str | None
    """Tag of the release that it is compared with; None if nothing is compared."""
    slot: int
    """Number of the interval: the next one looks it up again."""
    request: str
    """Value of the annotation cloister.dev/requested-at that requests it now; empty if there is
    none."""


Need: TypeAlias = NeedRelease | NeedImage | NeedSecretValues | NeedDns | NeedLatest
"""Something to look up, outside of the reconcile."""

LookupResult: TypeAlias = (
    Known[ReleaseFacts]
    | Known[RegistryImage]
    | Known[SecretValues]
    | Known[DnsFacts]
    | Known[NewestRelease]
    | Failed
)
"""The result of a `Need`."""


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """A Service of the Container and its EndpointSlices, as in the cluster."""

    selects: str
    """Name of the Enclave that the selector names; empty if there is none."""
    addresses: frozenset[str] = frozenset()
    """Addresses of the EndpointSlices."""
    uid: str = ""
    """uid of the Service."""
    node_port: int = 0
    """Its node port; 0 if there is none."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """Where routes are attached (Gateway API, ``parentRefs``)."""

    name: str
    """Name of the Gateway."""
    namespace: str
    """Its namespace."""
    section: str = ""
    """Name of its listener; empty means every one that accepts the route."""


class RouteState(StrEnum):
    """The state of a route, as the gateway reports it."""

    PENDING = "pending"
    """Nothing is reported yet about the present route."""
    ACCEPTED = "accepted"
    """It is accepted, and its backend is found."""
    REFUSED = "refused"
    """It is not accepted, or its backend may not be used."""


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """The TLSRoute of a host name, as in the cluster."""

    hostnames: tuple[str, ...]
    """Host names of the route, which is named after the one that it is for."""
    service: str
    """Name of the Service in the Container's namespace; empty if it is another's, or there is
    none."""
    gateway: Gateway | None
    """The Gateway that it is attached to; None if there is none, or more than one."""
    uid: str
    """uid of the route."""
    resource_version: str
    """resourceVersion of the route."""
    state: RouteState = RouteState.PENDING
    """The state that the gateway reports."""
    message: str = ""
    """Why the gateway refuses, in its words."""


@dataclass(frozen=True, slots=True)
class DecisionSettings:
    """The administrator's settings that a decision depends on."""

    containers_domain: str
    """Domain of generated host names."""
    service: str = "cloister"
    """Name of the mount and of the well-known paths."""
    platform: str = "linux/amd64"
    """Platform that images must have."""
    file_limit: int = 256 * 1024
    """Largest deployable file in bytes."""
    image_limit: int = MAX_IMAGE_BYTES
    """Most bytes of all images of a file as they are pulled."""
    pull_deadline: timedelta = timedelta(hours=1)
    """Time that an attempt may take from its creation until all of its containers have started."""
    progress_deadline: timedelta = timedelta(minutes=30)
    """Time that it may take from then until it is ready, in addition to what its health checks
    need."""
    attempts: int = 10
    """Attempts of a request that never served which may be lost in a row before it has failed."""
    follow_interval: timedelta = timedelta(minutes=5)
    """Time between two lookups of the newest release of a repository that is followed."""
    api_known: bool = True
    """Whether enclaves know the address of the API, which checks their clients' API keys."""
    taken_recheck: timedelta = timedelta(minutes=1)
    """Time between two checks of what only others can free, such as a taken host name."""
    domain_grace: timedelta = timedelta(days=7)
    """Grace period in which a custom domain that lost its verification is still served."""
    drain: timedelta = timedelta(0)
    """Time that an enclave drains after the next one is reached: clients may learn of it late."""
    gateway: Gateway | None = None
    """Gateway that routes host names to containers; None if the operator manages no routes."""
    repositories: RepositoryNames = field(default_factory=RepositoryNames)
    """How names of repositories are compared."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that a decision about one Container depends on."""

    container: Container
    """The Container itself."""
    settings: DecisionSettings
    """The administrator's settings."""
    organization: Organization | None = None
    """Organization that owns the namespace; None if there is none."""
    hosts: tuple[Host, ...] = ()
    """All Hosts."""
    enclaves: tuple[Enclave, ...] = ()
    """All Enclaves whose spec.container.name is this Container's, deleting ones and those of an
    earlier Container of that name (another uid) included, each with its newest status. An Enclave
    that status.activeEnclave names and that is not in the store was read by a live GET."""
    departed: tuple[Enclave, ...] = ()
    """Enclaves that only the metering finalizer keeps: they count only for their names, which are
    not free yet."""
    pods: frozenset[str] = frozenset()
    """Names of those Enclaves whose Pod exists, ending ones included."""
    cordoned: frozenset[str] = frozenset()
    """Names of those Enclaves whose Pod is on a node that takes no new Pods, as when it is
    drained."""
    incomplete: frozenset[str] = frozenset()
    """Names of those Enclaves without ConfigMap or snapshot and without a Pod: their creation was
    interrupted."""
    claims: Mapping[str, HostnameClaim] = field(default_factory=dict)
    """HostnameClaims by host name: those of the host names that a decision may be about, as far as
    somebody has them, and all that this Container (namespace and name) holds. One without uid is no
    object: its holder has the name by its own (`hostnames.container_named_in`)."""
    successor: Container | None = None
    """Container that replaces this one (`replacement.successor`); None if there is none."""
    inherits_hostnames: bool = False
    """Whether host names that ``spec.replaces`` holds must be transferred to this one
    (`replacement.inherits_hostnames`)."""
    rank: int | None = None
    """Place of the Container in its organization's order (`limits.rank`), from 0; None if it is
    not counted (being replaced)."""
    secrets: tuple[Secret, ...] = ()
    """All Secrets (csec) of the namespace."""
    ssh_keys: tuple[SSHKey, ...] = ()
    """All SSHKeys of the namespace."""
    domains: tuple[Domain, ...] = ()
    """All Domains of the namespace."""
    credentials: tuple[RegistryCredential, ...] = ()
    """All RegistryCredentials of the namespace."""
    deployment: Deployment | None = None
    """Deployment of the Container's repository; None if there is none."""
    service: ServiceFacts | None = None
    """The Service; None if there is none."""
    shells: ServiceFacts | None = None
    """The Service for SSH; None if there is none."""
    preview: ServiceFacts | None = None
    """The Service of the staged update; None if there is none."""
    routes: Mapping[str, RouteFacts] = field(default_factory=dict)
    """TLSRoutes of this Container by name, which is the host name; empty without a gateway."""
    results: Mapping[Need, LookupResult] = field(default_factory=dict)
    """Lookup results by need; may be a live view of the resolver's cache."""
    refused: tuple[str, str] | None = None
    """Revision of a request whose Enclave the API server refused, and its words; None if there is
    none."""
