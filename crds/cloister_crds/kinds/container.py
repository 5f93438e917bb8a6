"""Container: what a user asks for. One repository's configuration file, at one tag, running."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from cloister_crds.kinds.meta import KindInfo, Model, Resource, Status
from cloister_crds.schema.markers import Column, ListType

__all__ = [
    "COMMIT_PATTERN",
    "HOSTNAME_PATTERN",
    "NAME_PATTERN",
    "REPO_PATTERN",
    "Container",
    "ContainerPhase",
    "ContainerResources",
    "ContainerSpec",
    "ContainerStatus",
    "DesiredState",
    "HistoryEntry",
    "HostFacts",
    "LatestRelease",
    "UpdatePhase",
    "UpdateStatus",
    "UpdateType",
    "Variable",
]

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""Container names: lowercase letters, digits, hyphens, none at the ends (spec, "Limits")."""
REPO_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*$"
"""Repositories: ``owner/name``."""
COMMIT_PATTERN = r"^[0-9a-f]{40}$"
"""A git commit."""
HOSTNAME_PATTERN = r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
"""A lowercase DNS name with at least two labels (RFC 1123)."""


class DesiredState(StrEnum):
    """Whether the container is to run."""

    RUNNING = "Running"
    STOPPED = "Stopped"


class ContainerPhase(StrEnum):
    """The status words of the Admin API (spec, "States and transitions")."""

    PENDING = "pending"
    DEPLOYING = "deploying"
    STARTED = "started"
    READY = "ready"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


class UpdatePhase(StrEnum):
    """The update status words of the Admin API (spec, "States and transitions")."""

    PENDING = "pending"
    DEPLOYING = "deploying"
    STARTED = "started"
    READY = "ready"
    FAILED = "failed"


class UpdateType(StrEnum):
    """How an update takes over."""

    BLUE_GREEN = "blue_green"
    """The new enclave starts beside the old one."""
    REPLACE = "replace"
    """The old enclave ends first."""


class Variable(Model):
    """A deploy-time value for a bare name in ``env`` of the configuration file."""

    name: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """name as it stands in the file's env."""
    value: Annotated[str, Field(max_length=32768)] = ""
    """value of the variable; not secret: it can be read by all who read the Container. Default
    empty."""


SecretName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9_-]+$")]
KebabName = Annotated[str, Field(min_length=1, max_length=253, pattern=NAME_PATTERN)]
ObjectName = Annotated[
    str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
]


class ContainerSpec(Model):
    """What the user asks for."""

    name: Annotated[str, Field(min_length=1, max_length=64, pattern=NAME_PATTERN)] | None = None
    """name stands in the host name. Immutable. Default metadata.name (which must then be a valid
    name of at most 64 characters)."""
    repo: Annotated[str, Field(min_length=3, max_length=200, pattern=REPO_PATTERN)]
    """repo is ``owner/name`` at the installation's source of repositories. Immutable."""
    tag: Annotated[str, Field(min_length=1, max_length=255)]
    """tag of the release to run."""
    commit: Annotated[str, Field(pattern=COMMIT_PATTERN)] | None = None
    """commit, when set, must be where the tag points to; unset = wherever it points when the
    request is decided."""
    state: DesiredState = DesiredState.RUNNING
    """state is Running or Stopped. Default Running."""
    variables: Annotated[
        tuple[Variable, ...], ListType("map", keys=("name",)), Field(max_length=256)
    ] = ()
    """variables are the values of bare names in the file's env. Default none."""
    secrets: Annotated[tuple[SecretName, ...], ListType("set"), Field(max_length=256)] = ()
    """secrets are the names of organization secrets that the file may use. Default none."""
    ssh_keys: Annotated[tuple[KebabName, ...], ListType("set"), Field(max_length=64)] = ()
    """sshKeys are the names of SSHKeys that may log in; debug only. Default none."""
    debug: bool = False
    """debug makes a debug enclave, which verified clients refuse. Default false."""
    staging: bool | None = None
    """staging makes an update wait for promote; unset = the Deployment's defaultStaging."""
    gpus: Annotated[int, Field(ge=0, le=64)] | None = None
    """gpus replaces the file's value; unset = the file's."""
    custom_domain: (
        Annotated[str, Field(min_length=3, max_length=253, pattern=HOSTNAME_PATTERN)] | None
    ) = None
    """customDomain is a verified Domain of the organization; unset = the generated host name
    alone."""
    host: ObjectName | None = None
    """host names the Host; unset = the default Host."""
    auto_update: bool = False
    """autoUpdate follows later published releases; production only. Default false."""
    github_connected: bool = True
    """githubConnected lets the repository's webhooks act. Default true."""
    accept_shared_network: bool = False
    """acceptSharedNetwork accepts that the containers of the file share one network namespace, on
    Hosts with networkIsolation Pod. Default false."""
    disable_confidential: bool = False
    """disableConfidential runs without the TEE of the Host; debug only. Default false."""
    relaunch: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """relaunch is any text; a new value makes a new attempt of the same request. Unset = none
    asked for."""
    promote: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """promote names the staged revision (status.update.revision) that takes over; a stale name
    promotes nothing. Unset = none."""
    replaces: ObjectName | None = None
    """replaces names the Container that this one takes over from. Immutable. Unset = none."""


class LatestRelease(Model):
    """The newest published release of the repository."""

    tag: str
    """tag of the release."""
    commit: str
    """commit that the tag pointed to."""
    published_at: datetime
    """publishedAt is when it was published, in UTC."""


class ContainerResources(Model):
    """What the serving enclave has."""

    cpus: int = 0
    """cpus of the file."""
    memory_mb: int = Field(default=0, alias="memoryMB")
    """memoryMB of the file, in MB."""
    gpus: int = 0
    """gpus that the enclave has."""


class HostFacts(Model):
    """Where it runs."""

    name: str
    """name of the Host."""
    gpu_type: str = ""
    """gpuType of the Host; empty when not said."""
    cpu_type: str = ""
    """cpuType of the Host; empty when not said."""


class UpdateStatus(Model):
    """An update in progress, or the memory of one that failed."""

    enclave: str
    """enclave is the candidate's name; empty while none was made."""
    uid: str = ""
    """uid of the candidate; empty while none was made."""
    revision: str
    """revision to name in spec.promote."""
    tag: str
    """tag that the update brings."""
    status: UpdatePhase
    """status of the update, in the words of the Admin API."""
    type: UpdateType = UpdateType.REPLACE
    """type is blue_green or replace."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """message of the failure; empty otherwise."""


class HistoryEntry(Model):
    """An enclave that served or failed."""

    enclave: str
    """enclave's name."""
    tag: str
    """tag it ran."""
    commit: str
    """commit it ran."""
    outcome: str
    """outcome: Served, Failed or Ended."""
    at: datetime
    """at is when that was seen, in UTC."""


class ContainerStatus(Status):
    """What is so."""

    phase: ContainerPhase | None = None
    """phase is the status word of the Admin API; unset until the operator has looked."""
    domain: str = ""
    """domain is the public host name: the custom domain when set, else the generated one."""
    internal_domain: str = ""
    """internalDomain is the generated host name."""
    active_enclave: str = ""
    """activeEnclave is the name of the Enclave that serves; empty = none."""
    candidate: str = ""
    """candidate is the name of the Enclave on its way; empty = none."""
    current_tag: str = ""
    """currentTag is the tag that serves; before the first ready the requested one."""
    latest_release: LatestRelease | None = None
    """latestRelease of the repository; unset while not followed."""
    resources: ContainerResources | None = None
    """resources of the serving enclave, else of the candidate; unset while unknown."""
    host: HostFacts | None = None
    """host it runs on; unset while unknown."""
    ssh_port: int | None = None
    """sshPort of a debug enclave; unset otherwise."""
    update: UpdateStatus | None = None
    """update in progress or failed; unset otherwise."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """message of a failure; empty when all is well."""
    unenforced: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    """unenforced lists fields of the file that this Host cannot enforce."""
    history: Annotated[tuple[HistoryEntry, ...], ListType("atomic"), Field(max_length=10)] = ()
    """history of the last ten enclaves, newest first."""


class Container(Resource):
    """One repository's configuration file, at one release, running as a confidential enclave."""

    INFO: ClassVar[KindInfo] = KindInfo(
        kind="Container",
        plural="containers",
        singular="container",
        short_names=("ctr",),
        namespaced=True,
        description="One repository's configuration file, at one release, running as a "
        "confidential enclave under a host name of its own.",
    )
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Status", ".status.phase"),
        Column("Tag", ".status.currentTag"),
        Column("Update", ".status.update.status"),
        Column("Domain", ".status.domain"),
        Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        Column("Reason", ".status.conditions[?(@.type=='Ready')].reason"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Repo", ".spec.repo", wide=True),
        Column("Message", ".status.message", wide=True),
    )

    spec: ContainerSpec
    status: ContainerStatus = Field(default_factory=ContainerStatus)

    @property
    def display_name(self) -> str:
        """The name in the API and the host name: spec.name, else metadata.name."""
        return self.spec.name or self.metadata.name
