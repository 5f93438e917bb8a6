"""Container: what a user requests. One repository's configuration file, at one tag, running."""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from cloister_crds.kinds.meta import KindInfo, Model, Record, RecordStatus
from cloister_crds.kinds.request import RequestRecord, Variable
from cloister_crds.kinds.scalars import (
    COMMIT_PATTERN,
    HOSTNAME_PATTERN,
    NAME_PATTERN,
    REPO_PATTERN,
    Commit,
    Count,
    Flag,
    Hostname,
    ObjectName,
    Repo,
    Tag,
    Text,
    Timestamp,
    Whole,
    Word,
)
from cloister_crds.schema.markers import (
    Cel,
    Column,
    ListType,
    MapType,
    immutable,
    immutable_optional,
    matches,
)

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
    "KeptRequest",
    "LatestRelease",
    "ServedBindings",
    "UpdatePhase",
    "UpdateStatus",
    "UpdateType",
]

NAME_LENGTH = 64
"""Longest container name."""
VARIABLES_BYTES = 131_072
"""Most bytes of UTF-8 that the names and values of variables may have together: four values of the
largest size. A request is copied into the status and into each Enclave, and both programs keep
these objects in memory."""


class DesiredState(StrEnum):
    """Whether the container should run."""

    RUNNING = "Running"
    STOPPED = "Stopped"


class ContainerPhase(StrEnum):
    """The status words of the Admin API (spec 5.1)."""

    PENDING = "pending"
    DEPLOYING = "deploying"
    STARTED = "started"
    READY = "ready"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


class UpdatePhase(StrEnum):
    """The update status words of the Admin API (spec 5.3)."""

    PENDING = "pending"
    DEPLOYING = "deploying"
    STARTED = "started"
    READY = "ready"
    FAILED = "failed"


class UpdateType(StrEnum):
    """How an update is promoted."""

    BLUE_GREEN = "blue_green"
    """The new enclave starts while the old one serves."""
    REPLACE = "replace"
    """The old enclave ends first."""


SecretName = Annotated[
    str,
    Field(min_length=1, max_length=253),
    matches(
        r"^[A-Za-z0-9_-]+$",
        "secrets are named as the configuration file writes them: letters, digits, hyphens and "
        "underscores",
    ),
]
"""Name of a secret as configuration files write it."""


def bytes_of(variables: Iterable[Variable]) -> int:
    """Return how many bytes of UTF-8 names and values have together."""
    return sum(len(each.name) + len(each.value.encode()) for each in variables)


class ContainerSpec(Model):
    """Desired state of a Container."""

    CEL: ClassVar[tuple[Cel, ...]] = (
        immutable_optional("name", "make another Container"),
        immutable_optional("replaces", "make another Container"),
        Cel(
            rule="self.debug || !has(self.sshKeys) || size(self.sshKeys) == 0",
            message="sshKeys are for debug enclaves only; set debug: true or leave sshKeys out",
            field_path=".sshKeys",
            reason="FieldValueForbidden",
            check=lambda spec: spec.debug or not spec.ssh_keys,
        ),
        Cel(
            rule="self.debug || !self.disableConfidential",
            message="disableConfidential is for debug enclaves only; set debug: true or leave "
            "disableConfidential out",
            field_path=".disableConfidential",
            reason="FieldValueForbidden",
            check=lambda spec: spec.debug or not spec.disable_confidential,
        ),
        Cel(
            rule="!self.debug || !self.autoUpdate",
            message="autoUpdate is for production only; leave out debug or autoUpdate",
            field_path=".autoUpdate",
            reason="FieldValueForbidden",
            check=lambda spec: not (spec.debug and spec.auto_update),
        ),
        Cel(
            rule="self.githubConnected || !self.autoUpdate",
            message="autoUpdate needs githubConnected: true; leave out one of the two",
            field_path=".autoUpdate",
            reason="FieldValueForbidden",
            check=lambda spec: spec.github_connected or not spec.auto_update,
        ),
        Cel(
            rule="!has(self.variables) || "
            "self.variables.map(v, size(v.name) + (has(v.value) ? size(bytes(v.value)) : 0)).sum() "
            f"<= {VARIABLES_BYTES}",
            message=f"variables have more than {VARIABLES_BYTES} bytes, names and values together; "
            "put large values into the image or fetch them at start",
            field_path=".variables",
            check=lambda spec: bytes_of(spec.variables) <= VARIABLES_BYTES,
        ),
    )

    name: (
        Annotated[
            str,
            Field(min_length=1, max_length=NAME_LENGTH),
            matches(
                NAME_PATTERN,
                "name is of lowercase letters, digits and hyphens, with no hyphen at the ends",
            ),
        ]
        | None
    ) = None
    """name is part of the host name. Immutable. Default metadata.name (which must then be a valid
    name of at most 64 characters)."""
    repo: Annotated[Repo, immutable("repo", "make another Container")]
    """repo is ``owner/name`` at the installation's source of repositories. Immutable."""
    tag: Tag
    """tag of the release to run."""
    commit: Commit | None = None
    """commit, when set, must be where the tag points to, or the one that serves or last served;
    unset means that one while tag is the same, else wherever the tag points when the request is
    decided."""
    state: DesiredState = DesiredState.RUNNING
    """state is Running or Stopped. Default Running."""
    variables: Annotated[
        tuple[Variable, ...], Field(max_length=256), ListType("map", keys=("name",))
    ] = ()
    """variables are the values of bare names in the file's env; names and values have at most
    131072 bytes together. Default none."""
    secrets: Annotated[tuple[SecretName, ...], Field(max_length=256), ListType("set")] = ()
    """secrets are the names of organization secrets that the file may use. Default none."""
    ssh_keys: Annotated[tuple[ObjectName, ...], Field(max_length=64), ListType("set")] = ()
    """sshKeys are the names of SSHKeys that may log in; debug only. Default none."""
    debug: Flag = False
    """debug makes a debug enclave, which verified clients refuse. Default false."""
    staging: Flag | None = None
    """staging makes an update wait for promote; unset means status.staging."""
    gpus: Annotated[int, Whole(0, 64)] | None = None
    """gpus replaces the file's value; unset means the file's."""
    custom_domain: Hostname | None = None
    """customDomain is a verified Domain of the organization; unset means the generated host name
    only."""
    host: ObjectName | None = None
    """host names the Host; unset means the default Host."""
    auto_update: Flag = False
    """autoUpdate follows later published releases; production only. Default false."""
    github_connected: Flag = True
    """githubConnected lets the repository's webhooks act. Default true."""
    accept_shared_network: Flag = False
    """acceptSharedNetwork accepts that the containers of the file share one network namespace, on
    Hosts with networkIsolation Pod. Default false."""
    disable_confidential: Flag = False
    """disableConfidential runs without the TEE of the Host; debug only. Default false."""
    relaunch: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """relaunch is any text; a new value makes a new attempt of the same request. Unset if there is
    none requested."""
    relaunch_staging: Flag | None = None
    """relaunchStaging is staging of the update that the present value of relaunch requests; when
    that has ended, or was put back, it counts no more. Unset means staging."""
    promote: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """promote names the staged revision (status.update.revision) to promote; a stale name
    promotes nothing. Unset if there is none."""
    replaces: ObjectName | None = None
    """replaces names an older Container of the namespace: it serves until this one is ready, its
    host names pass over, then it is deleted. Immutable. Unset if there is none."""


class LatestRelease(Model):
    """The newest published release of the repository."""

    tag: Word
    """tag of the release."""
    commit: Word
    """commit that the tag pointed to."""
    published_at: Timestamp
    """publishedAt is when it was published, in UTC."""
    compared_to: Word = ""
    """comparedTo is the tag of spec that it was compared with."""
    followed: Flag = False
    """followed is whether it is later than that tag, and wanted instead."""
    request: Word = ""
    """request is the value of cloister.dev/requested-at of the Deployment that it acknowledges."""


class ContainerResources(Model):
    """What the serving enclave has."""

    cpus: Count = 0
    """cpus of the file."""
    memory_mb: Count = Field(default=0, alias="memoryMB")
    """memoryMB of the file, in MB."""
    gpus: Count = 0
    """gpus that the enclave has."""


class HostFacts(Model):
    """Where it runs."""

    name: Word
    """name of the Host."""
    gpu_type: Word = ""
    """gpuType of the Host; empty when not set."""
    cpu_type: Word = ""
    """cpuType of the Host; empty when not set."""


class UpdateStatus(Model):
    """An update in progress, or the memory of one that failed."""

    enclave: Word
    """enclave is the candidate's name; empty while there is none."""
    uid: Word = ""
    """uid of the candidate; empty while there is none."""
    revision: Word
    """revision to name in spec.promote."""
    tag: Word
    """tag that the update brings."""
    status: UpdatePhase
    """status of the update, in the words of the Admin API."""
    type: UpdateType = UpdateType.REPLACE
    """type is blue_green or replace."""
    message: Text = ""
    """message of the failure; empty otherwise."""
    preview: Word = ""
    """preview is the host name at which an update that waits for promotion can be tried; empty if
    it does not wait."""


class HistoryEntry(Model):
    """An enclave that served or failed."""

    enclave: Word
    """enclave's name."""
    tag: Word
    """tag it ran."""
    commit: Word
    """commit it ran."""
    outcome: Word
    """outcome: Served, Failed or Ended."""
    at: Timestamp
    """at is when that was seen, in UTC."""
    started_at: Timestamp | None = None
    """startedAt is when its Pod was first seen up, in UTC; unset if it never was, and in entries of
    earlier releases."""
    ready_at: Timestamp | None = None
    """readyAt is when it was first ready, in UTC; unset if it never was, and as startedAt."""
    promoted_at: Timestamp | None = None
    """promotedAt is when it began to serve, in UTC; unset if it never served, and as startedAt."""
    reason: Word = ""
    """reason of its last phase; empty when all was well, and as startedAt."""
    measurement: Word = ""
    """measurement is the digest of its measurement document; empty if it had none, and as
    startedAt."""


class KeptRequest(Model):
    """A request that counts instead of the one in spec, since spec names no other release."""

    request: RequestRecord
    """request that serves, or that the next start brings back."""
    instead_of: RequestRecord
    """insteadOf is what spec requested when that was decided. A field of spec that differs from it
    counts; another tag or commit ends this."""
    update_ended: Flag = False
    """updateEnded is whether a stop ended an update to insteadOf; otherwise automatic updates were
    switched off. Default false."""


class ServedBindings(Model):
    """What the serving enclave was given of the organization."""

    secrets: Annotated[tuple[Word, ...], Field(max_length=256), ListType("set")] = ()
    """secrets that its request binds."""
    ssh_keys: Annotated[tuple[Word, ...], Field(max_length=64), ListType("set")] = ()
    """sshKeys that its request names."""


class ContainerStatus(RecordStatus):
    """Observed state of a Container."""

    phase: ContainerPhase | None = None
    """phase is the status word of the Admin API; unset before the first reconcile."""
    domain: Word = ""
    """domain is the public host name: the custom domain when set, else the generated one."""
    internal_domain: Word = ""
    """internalDomain is the generated host name."""
    active_enclave: Word = ""
    """activeEnclave is the name of the Enclave that serves; empty if there is none."""
    candidate: Word = ""
    """candidate is the name of the Enclave on its way; empty if there is none."""
    current_tag: Word = ""
    """currentTag is the tag that serves or last served; before the first ready the requested
    one."""
    current_commit: Word = ""
    """currentCommit is the commit that serves or last served; empty if nothing has served yet."""
    staging: Flag | None = None
    """staging is the Deployment's defaultStaging as it was when the first Enclave was made; it
    counts where spec does not say staging. Unset before that."""
    own_staging: Flag | None = None
    """ownStaging is staging of the container itself, spec's or the kept default, as it was before
    the update in progress; the cancel of the update goes back to it. Unset before the first
    reconcile."""
    requested_tag: Word = ""
    """requestedTag is the desired tag: that of spec, the one that is followed, or the one
    that continues or comes back instead (keptRequest)."""
    kept_request: KeptRequest | None = None
    """keptRequest counts instead of what spec requests: what served, after a stop ended an update
    that was not accepted, or after automatic updates were switched off. Unset if spec counts."""
    latest_release: LatestRelease | None = None
    """latestRelease of the repository; unset while autoUpdate is off."""
    resources: ContainerResources | None = None
    """resources of the serving enclave, else of the candidate; unset while unknown."""
    host: HostFacts | None = None
    """host it runs on; unset while unknown."""
    ssh_port: Annotated[int, Whole(1, 65535)] | None = None
    """sshPort of a debug enclave; unset otherwise."""
    replaced_by: Word = ""
    """replacedBy is the name of the Container that replaces this one; until that one is ready, this
    one continues to serve. Empty if none does."""
    update: UpdateStatus | None = None
    """update in progress or failed; unset otherwise."""
    message: Text = ""
    """message of a failure; empty when all is well."""
    unenforced: Annotated[tuple[Word, ...], Field(max_length=64)] = ()
    """unenforced lists fields of the file that this Host cannot enforce."""
    secrets: Annotated[tuple[Word, ...], Field(max_length=32_768), ListType("atomic")] | None = None
    """secrets that the file names which serves, or served last, and that of an update on its way;
    unset while unknown."""
    served_bindings: ServedBindings | None = None
    """servedBindings are the secrets and SSH keys of the serving enclave's request, which are in
    use although spec may no longer name them; unset if none serves."""
    history: Annotated[tuple[HistoryEntry, ...], Field(max_length=10), ListType("atomic")] = ()
    """history of the last ten enclaves, newest first."""


def _is_named(container: "Container") -> bool:
    """Return whether spec.name is there or metadata.name can be its default."""
    name = container.metadata.name
    return container.spec.name is not None or (
        len(name) <= NAME_LENGTH and re.fullmatch(NAME_PATTERN, name) is not None
    )


class Container(Record):
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
    CEL: ClassVar[tuple[Cel, ...]] = (
        Cel(
            rule=f"has(self.spec.name) || (size(self.metadata.name) <= {NAME_LENGTH} && "
            f"self.metadata.name.matches(r'{NAME_PATTERN}'))",
            message="spec.name is required here: metadata.name is its default, and it is not a "
            "valid container name (lowercase letters, digits and hyphens, no hyphen at the ends, "
            f"at most {NAME_LENGTH} characters); set spec.name or choose another metadata.name",
            field_path=".spec.name",
            reason="FieldValueRequired",
            check=_is_named,
        ),
        Cel(
            rule="!has(self.spec.replaces) || self.spec.replaces != self.metadata.name",
            message="replaces names this very Container; name another one or leave it out",
            field_path=".spec.replaces",
            check=lambda container: container.spec.replaces != container.metadata.name,
        ),
    )
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Status", ".status.phase"),
        Column("Tag", ".status.currentTag"),
        Column("Update", ".status.update.status"),
        Column("Debug", ".spec.debug", "boolean"),
        Column("Domain", ".status.domain"),
        Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        Column("Reason", ".status.conditions[?(@.type=='Ready')].reason"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Requested", ".status.requestedTag", wide=True),
        Column("Repo", ".spec.repo", wide=True),
        Column("Host", ".status.host.name", wide=True),
        Column("API-Name", ".spec.name", wide=True),
        Column("Replaced-By", ".status.replacedBy", wide=True),
        # Empty while all is well: at the end of the line it lengthens only that of a failure.
        Column("Message", ".status.message"),
    )

    spec: ContainerSpec
    status: Annotated[ContainerStatus, MapType("atomic")] = Field(default_factory=ContainerStatus)

    @property
    def display_name(self) -> str:
        """The name in the API and the host name: spec.name, else metadata.name."""
        return self.spec.name or self.metadata.name
