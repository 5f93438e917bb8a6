"""What is known when a pass decides: frozen facts, gathered by the operator, judged by `decide`.

Nothing here is looked up: whoever makes an `Observed` has read everything before. Facts that
must be asked for outside of the cluster (a release, an image) stand in `Observed.answers` under the
`Need` that asks for them; a need without an answer was not asked yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

from cloister_crds.config.limits import CPU_TIERS, GPU_COUNTS, MEMORY_TIERS
from cloister_crds.config.model import ServiceConfig
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
from cloister_crds.problems import Problem

__all__ = [
    "Answer",
    "DecisionSettings",
    "DnsFacts",
    "Failed",
    "Gateway",
    "Known",
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
    """A question was answered."""

    value: T_co
    """The answer."""
    at: datetime
    """When it was answered, in UTC."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A question could not be answered."""

    reason: str
    """CamelCase word of the reasons table (`cloister_crds.lifecycle.state.reasons`)."""
    message: str
    """Sentence for people: what could not be had and what to do."""
    transient: bool
    """Whether asking again may help."""
    at: datetime
    """When it failed, in UTC."""
    retry_at: datetime | None = None
    """When to ask again at the earliest, in UTC (the asker's back-off); None for what is not
    transient."""


@dataclass(frozen=True, slots=True)
class ReleaseFacts:
    """A release and its configuration file, parsed once by the resolver."""

    repo: str
    """``owner/name``."""
    tag: str
    """Tag of the release."""
    commit: str
    """Commit that the tag pointed to, 40 hex digits."""
    published: datetime
    """When it was published, in UTC."""
    file_name: str
    """Name under which the file was found."""
    raw: bytes
    """The file as it is; what is measured and mounted."""
    digest: str
    """``sha256:`` and the hash of `raw`."""
    config: ServiceConfig | None
    """The normalised file; None when it has errors."""
    problems: tuple[Problem, ...] = ()
    """Errors and warnings of the file."""
    unenforced: tuple[str, ...] = ()
    """Fields of the file that the operator's Pods cannot enforce, in its order."""


@dataclass(frozen=True, slots=True)
class RegistryImage:
    """An image as its registry describes it."""

    image: str
    """Reference with digest, as the kubelet pulls it."""
    entrypoint: tuple[str, ...] | None = None
    """ENTRYPOINT of the image; None = none."""
    cmd: tuple[str, ...] | None = None
    """CMD of the image; None = none."""
    env: tuple[str, ...] = ()
    """ENV of the image, ``NAME=value``."""
    user: str = ""
    """USER of the image; empty = root."""
    working_dir: str = ""
    """WORKDIR of the image; empty = /."""
    stop_signal: str = ""
    """STOPSIGNAL of the image; empty = SIGTERM."""


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
    """Whether the values of secrets can be read; the values themselves never come here."""

    missing: tuple[SecretRefKey, ...] = ()
    """Those whose core Secret or key does not exist."""


@dataclass(frozen=True, slots=True)
class DnsFacts:
    """What the servers of a zone say about a custom domain."""

    texts: tuple[str, ...] = ()
    """Values of the TXT records."""
    aliases: tuple[str, ...] = ()
    """Targets of the CNAME record; several while the servers differ."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """The shapes that an organization's files may ask for (config: "tier lists")."""

    cpus: tuple[int, ...] = CPU_TIERS
    """Values of ``cpus``, ascending."""
    memory: tuple[int, ...] = MEMORY_TIERS
    """Values of ``memory`` in MB, ascending."""
    gpus: tuple[int, ...] = GPU_COUNTS
    """Values of ``gpus`` when it is there, ascending."""

    @classmethod
    def of(cls, organization: Organization | None) -> "Tiers":
        """Return the shapes of an Organization; those of the format where there is none."""
        if organization is None:
            return cls()
        limits = organization.spec.limits
        return cls(
            tuple(sorted(limits.cpus)), tuple(sorted(limits.memory)), tuple(sorted(limits.gpus))
        )


@dataclass(frozen=True, slots=True)
class NeedRelease:
    """Ask the source provider for a release and its file. Answered with `ReleaseFacts`."""

    repo: str
    """``owner/name``."""
    tag: str
    """Tag of the release."""
    commit: str | None
    """Commit that the tag must point to; None = wherever it points."""
    request: str
    """Revision of the request that asks: an answer given to an earlier request does not count
    (the resolver may share what is in flight or seconds old)."""
    tiers: Tiers = Tiers()
    """Shapes that the file may ask for."""


@dataclass(frozen=True, slots=True)
class NeedImage:
    """Ask a registry for an image. Answered with `RegistryImage`."""

    image: str
    """Reference with digest, as the file has it."""
    platform: str
    """Platform such as ``linux/amd64``."""
    namespace: str
    """Namespace of the organization, with the core Secrets of its credentials."""
    credentials: tuple[SecretRefKey, ...]
    """Credentials of the organization, by the registry that each is for; ordered."""
    request: str
    """Revision of the request that asks; see `NeedRelease.request`."""


@dataclass(frozen=True, slots=True)
class NeedSecretValues:
    """Ask whether the values of secrets can be read. Answered with `SecretValues`."""

    namespace: str
    """Namespace of the core Secrets."""
    refs: tuple[SecretRefKey, ...]
    """What must be there, ordered."""
    request: str
    """Revision of the request that asks; see `NeedRelease.request`."""


@dataclass(frozen=True, slots=True)
class NeedDns:
    """Ask the servers of a zone for the records of a custom domain. Answered with `DnsFacts`."""

    domain: str
    """The custom domain, whose CNAME record is looked at."""
    txt_name: str
    """Name of the TXT record."""
    request: str
    """Which look it is; see `NeedRelease.request`."""


@dataclass(frozen=True, slots=True)
class NewestRelease:
    """The newest published release of a repository."""

    newest: LatestRelease | None
    """The release; None = the repository has none."""
    than_published: datetime | None = None
    """When the release that it is compared with was published, in UTC; None = that has none, or
    it is the newest itself, or nothing is compared."""


@dataclass(frozen=True, slots=True)
class NeedLatest:
    """Ask the source provider for the newest release. Answered with `NewestRelease`."""

    repo: str
    """``owner/name``."""
    than: str | None
    """Tag of the release that it is compared with; None = none is."""
    slot: int
    """Number of the interval that asks: the next one asks anew."""
    request: str
    """Value of the annotation cloister.dev/requested-at that wants it now; empty = none."""


Need: TypeAlias = NeedRelease | NeedImage | NeedSecretValues | NeedDns | NeedLatest
"""Something that must be asked for outside of the pass."""

Answer: TypeAlias = (
    Known[ReleaseFacts]
    | Known[RegistryImage]
    | Known[SecretValues]
    | Known[DnsFacts]
    | Known[NewestRelease]
    | Failed
)
"""What came back for a `Need`."""


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """The Container's Service and its EndpointSlices as the cluster has them."""

    selects: str
    """Name of the Enclave that the selector names; empty = none."""
    addresses: frozenset[str] = frozenset()
    """Addresses of the EndpointSlices."""
    uid: str = ""
    """uid of the Service."""
    node_port: int = 0
    """Port of the nodes that leads to it; 0 = none."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """Where routes are attached (Gateway API, ``parentRefs``)."""

    name: str
    """Name of the Gateway."""
    namespace: str
    """Its namespace."""
    section: str = ""
    """Name of its listener; empty = every one that takes the route."""


class RouteState(StrEnum):
    """What the gateway says about a route."""

    PENDING = "pending"
    """Nothing yet about the route as it is now."""
    ACCEPTED = "accepted"
    """It is accepted, and what it leads to is found."""
    REFUSED = "refused"
    """It is not accepted, or what it leads to may not be used."""


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """The TLSRoute of a host name as the cluster has it."""

    hostnames: tuple[str, ...]
    """Host names of the route; its name says which one it is for."""
    service: str
    """Name of the Service in the Container's namespace; empty = another's, or none."""
    gateway: Gateway | None
    """What it is attached to; None = nothing, or more than one."""
    uid: str
    """uid of the route."""
    resource_version: str
    """resourceVersion of the route."""
    state: RouteState = RouteState.PENDING
    """What the gateway says."""
    message: str = ""
    """Why the gateway refuses, in its words."""


@dataclass(frozen=True, slots=True)
class DecisionSettings:
    """What the administrator set and a decision depends on."""

    containers_domain: str
    """Domain under which generated host names stand."""
    service: str = "cloister"
    """Name of the mount and of the well-known paths."""
    platform: str = "linux/amd64"
    """Platform that images must have."""
    file_limit: int = 256 * 1024
    """Largest deployable file in bytes."""
    progress_deadline: timedelta = timedelta(minutes=30)
    """Time that an attempt may take from its creation until it is ready."""
    attempts: int = 10
    """Attempts of a request that never served which may be lost in a row before it has failed."""
    follow_interval: timedelta = timedelta(minutes=5)
    """Time between two questions for the newest release of a repository that is followed."""
    api_known: bool = True
    """Whether enclaves know where the API is, which checks their clients' API keys."""
    taken_recheck: timedelta = timedelta(minutes=1)
    """Time between two looks at what only others can free, such as a taken host name."""
    domain_grace: timedelta = timedelta(days=7)
    """Time for which a custom domain that lost its verification goes on to serve."""
    drain: timedelta = timedelta(0)
    """Time that an enclave stays after its successor is reached, for whoever learns of it late."""
    gateway: Gateway | None = None
    """Gateway that leads host names to containers; None = routes are nobody's business here."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that a decision about one Container depends on."""

    container: Container
    """The Container itself."""
    settings: DecisionSettings
    """What the administrator set."""
    organization: Organization | None = None
    """Organization that owns the namespace; None = there is none."""
    hosts: tuple[Host, ...] = ()
    """All Hosts."""
    enclaves: tuple[Enclave, ...] = ()
    """All Enclaves whose spec.container.name is this Container's, deleting ones and those of an
    earlier Container of that name (another uid) included, each with its newest judgement as status.
    An Enclave that status.activeEnclave names and the store lacks was asked for by a live GET."""
    departed: tuple[Enclave, ...] = ()
    """Enclaves that only the finalizer of metering keeps: they count for nothing but their names,
    which are not free yet."""
    pods: frozenset[str] = frozenset()
    """Names of those Enclaves whose Pod exists, ending ones included."""
    cordoned: frozenset[str] = frozenset()
    """Names of those Enclaves whose Pod is on a node that takes no new Pods, as when it is
    drained."""
    incomplete: frozenset[str] = frozenset()
    """Names of those Enclaves that lack their ConfigMap or snapshot and have no Pod: whoever made
    them was interrupted."""
    claims: Mapping[str, HostnameClaim] = field(default_factory=dict)
    """HostnameClaims by host name: those of `hostnames.wanted_hostnames` that exist, and all that
    this Container (namespace and name) holds."""
    successor: Container | None = None
    """Container that takes over from this one (`replacement.successor`); None = there is none."""
    inherits_hostnames: bool = False
    """Whether host names that ``spec.replaces`` holds are to pass to this one
    (`replacement.inherits_hostnames`)."""
    rank: int | None = None
    """Place of the Container in its organization's order (`limits.rank`), from 0; None = it is
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
    """Deployment of the Container's repository; None = there is none."""
    service: ServiceFacts | None = None
    """The Service; None = there is none."""
    shells: ServiceFacts | None = None
    """The Service by which people log in; None = there is none."""
    preview: ServiceFacts | None = None
    """The Service of the staged update; None = there is none."""
    routes: Mapping[str, RouteFacts] = field(default_factory=dict)
    """TLSRoutes of this Container by name, which is the host name; empty without a gateway."""
    answers: Mapping[Need, Answer] = field(default_factory=dict)
    """Answers by need; a view of the resolver's cache will do."""
