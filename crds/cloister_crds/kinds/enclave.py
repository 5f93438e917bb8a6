"""Enclave: one attempt to run a request. Immutable, mortal, one Pod in its life."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from cloister_crds.kinds.meta import KindInfo, Model, Resource, Status
from cloister_crds.kinds.request import RequestRecord
from cloister_crds.kinds.scalars import Count, Flag, Text, Timestamp, Whole, Word
from cloister_crds.schema.markers import Column, ListType, MapType

__all__ = [
    "BootStage",
    "ContainerState",
    "ContainerStateName",
    "Enclave",
    "EnclavePhase",
    "EnclaveSpec",
    "EnclaveStatus",
    "EnclaveSummary",
    "ImageArguments",
    "ImageDirectory",
    "ImageEnvironment",
    "ImageFacts",
    "OwningContainer",
]


class EnclavePhase(StrEnum):
    """How far an attempt is."""

    PENDING = "Pending"
    """Its Pod is not up: not made, not scheduled, pulling."""
    STARTED = "Started"
    """Its Pod is up and its health checks run."""
    READY = "Ready"
    """Every container has started, is healthy and none has exited non-zero."""
    FAILED = "Failed"
    """It failed permanently, or was lost; it has no Pod or soon has none."""
    ENDED = "Ended"
    """It was terminated."""


class OwningContainer(Model):
    """The Container that an Enclave belongs to."""

    name: Word
    """name of the Container (metadata.name)."""
    uid: Word
    """uid of the Container."""


Reference = Annotated[str, Field(max_length=1024)]
"""An image reference."""
Argument = Annotated[str, Field(max_length=32768)]
"""One word of a command line or environment."""
ImageArguments = Annotated[tuple[Argument, ...], Field(max_length=256)]
"""Command line of an image; what an image may say is bounded here, for its parser as well."""
ImageEnvironment = Annotated[tuple[Argument, ...], Field(max_length=1024)]
"""Environment of an image, each ``NAME=value``."""
ImageDirectory = Annotated[str, Field(max_length=4096)]
"""Working directory of an image."""


class ImageFacts(Model):
    """An image as the registry described it when the attempt was decided."""

    container: Word
    """container of the file that uses it."""
    image: Reference
    """image reference with digest, as the kubelet pulls it."""
    entrypoint: ImageArguments | None = None
    """entrypoint of the image; unset if there is none."""
    cmd: ImageArguments | None = None
    """cmd of the image; unset if there is none."""
    env: ImageEnvironment = ()
    """env of the image, ``NAME=value``."""
    user: Word = ""
    """user of the image; empty means root."""
    working_dir: ImageDirectory = ""
    """workingDir of the image; empty means /."""
    stop_signal: Word = ""
    """stopSignal of the image; empty means SIGTERM."""


class EnclaveKey(Model):
    """A public key that may log in, as it was when the attempt was decided."""

    name: Word
    """name of the SSHKey."""
    public_key: Annotated[str, Field(max_length=16_384)]
    """publicKey is one line of an OpenSSH public key file."""


class EnclaveSummary(Model):
    """What the parsed file says, for those who read the Enclave."""

    cpus: Count
    """cpus of the file."""
    memory_mb: Count = Field(alias="memoryMB")
    """memoryMB of the file, in MB."""
    gpus: Count = 0
    """gpus of the enclave: the request's, else the file's."""
    containers: Annotated[tuple[Word, ...], Field(max_length=64), ListType("atomic")] = ()
    """containers of the file, in order."""
    upstream: Word = ""
    """upstream is the container that the shim routes to."""
    checks_keys: Flag = False
    """checksKeys is whether some paths of the file require an API key. Default false."""
    boot_allowance_seconds: Count = 0
    """bootAllowanceSeconds is the longest time that a health check of the file may need after its
    container has started; the deadline of the boot is later by it. Default 0."""
    unenforced: Annotated[tuple[Word, ...], Field(max_length=64), ListType("atomic")] = ()
    """unenforced lists fields of the file that the Host cannot enforce. Default none."""
    secrets: Annotated[tuple[Word, ...], Field(max_length=16_384), ListType("atomic")] | None = None
    """secrets that the containers of the file name, ordered; unset if made by an earlier release,
    which did not record them."""


class EnclaveSpec(Model):
    """Desired state of an Enclave, as decided at its creation. Immutable as a whole."""

    container: OwningContainer
    """container that it belongs to."""
    request: RequestRecord
    """request that it was made from."""
    revision: Word
    """revision names the request; promote refers to it."""
    attempt: Annotated[int, Whole(1, 2_147_483_647)]
    """attempt counts the Enclaves of the revision from 1."""
    losses: Annotated[int, Whole(0, 2_147_483_647)] = 0
    """losses counts the attempts in a row that were lost before this one; the backoff of the next
    one follows from it. Default 0."""
    repo: Word
    """repo, ``owner/name``."""
    tag: Word
    """tag that was resolved."""
    commit: Word
    """commit that the tag pointed to."""
    config_digest: Word
    """configDigest is ``sha256:`` and the hash of the file's raw bytes."""
    config_file: Word
    """configFile is the name under which the file was found."""
    summary: EnclaveSummary
    """summary of the parsed file."""
    images: Annotated[
        tuple[ImageFacts, ...], Field(max_length=64), ListType("map", keys=("container",))
    ] = ()
    """images as the registry described them."""
    debug: Flag = False
    """debug enclave or not."""
    ssh_keys: Annotated[
        tuple[EnclaveKey, ...], Field(max_length=64), ListType("map", keys=("name",))
    ] = ()
    """sshKeys may log in to it; only of debug enclaves. Default none."""
    host: Word
    """host that it runs on."""
    pull_secrets: Annotated[tuple[Word, ...], Field(max_length=8), ListType("atomic")] = ()
    """pullSecrets are the core Secrets with credentials that its images are pulled with, as they
    are at each pull. Default none."""
    hostnames: Annotated[tuple[Word, ...], Field(max_length=4), ListType("atomic")] = ()
    """hostnames that it serves, the public one first."""
    preview: Word = ""
    """preview is the host name at which it can be tried while it waits for promotion; empty if it
    was not made to wait."""
    stop_first: Flag = False
    """stopFirst is whether the previous Enclave terminates before this one starts, since both need
    the same GPUs; its Pod waits for them ahead of others. Default false."""
    signed_certificate: Flag = False
    """signedCertificate is whether the enclave requests its certificate from the API, with a token
    of its Pod; otherwise its shim signs itself. Default false."""
    service: Word = ""
    """service is the name under which its containers find its verified files, and clients its
    attestation; empty means that of the operator's settings."""

    @property
    def served_names(self) -> tuple[str, ...]:
        """Every host name that it serves, the public one first."""
        return (*self.hostnames, self.preview) if self.preview else self.hostnames


class BootStage(Model):
    """A step of the start."""

    name: Word
    """name of the stage."""
    status: Word
    """status: pending, ok, skipped, warning or failed."""
    duration_ms: Count | None = None
    """durationMs in milliseconds; unset while it runs."""
    detail: Annotated[str, Field(max_length=4096)] = ""
    """detail for people."""


class ContainerStateName(StrEnum):
    """What a container of an enclave does."""

    WAITING = "Waiting"
    RUNNING = "Running"
    TERMINATED = "Terminated"


class ContainerState(Model):
    """One container of the enclave."""

    name: Word
    """name in the file."""
    state: ContainerStateName
    """state: Waiting, Running or Terminated."""
    healthy: Flag | None = None
    """healthy as its healthcheck says; unset if it has none, or was not checked yet."""
    restart_count: Count = 0
    """restartCount since the Pod started."""
    exit_code: Annotated[int, Whole(-2_147_483_648, 2_147_483_647)] | None = None
    """exitCode of its last termination; unset if it never terminated."""
    message: Annotated[str, Field(max_length=4096)] = ""
    """message: reason and text of a wait or an end."""


class EnclaveStatus(Status):
    """Observed state of an Enclave."""

    phase: EnclavePhase | None = None
    """phase of the attempt; unset before the first reconcile."""
    reason: Word = ""
    """reason of the phase: a word of the reasons table; empty when all is well."""
    message: Text = ""
    """message of the phase for people."""
    pod_uid: Word = Field(default="", alias="podUID")
    """podUID of its Pod; empty if none was seen. Once set, no second Pod is ever made."""
    node: Word = ""
    """node that the Pod runs on."""
    address: Word = ""
    """address of the Pod, IPv4."""
    boot_stages: Annotated[tuple[BootStage, ...], Field(max_length=32), ListType("atomic")] = ()
    """bootStages of the start."""
    measurement: Word = ""
    """measurement is the digest of the enclave's measurement document; empty until it has a Pod."""
    initdata: Word = ""
    """initdata is the digest of the initdata that the enclave's machine was started with, with its
    algorithm; empty where none is measured."""
    guest_rules: Word = ""
    """guestRules is the digest of the rules by which the agent of the enclave's machine judges
    requests of its host; empty where there are none."""
    containers: Annotated[
        tuple[ContainerState, ...], Field(max_length=64), ListType("map", keys=("name",))
    ] = ()
    """containers of the enclave and how they are."""
    started_at: Timestamp | None = None
    """startedAt is when the Pod was first seen up, in UTC."""
    ready_at: Timestamp | None = None
    """readyAt is when the enclave was first ready, in UTC."""
    serving: Flag = False
    """serving is whether it serves: it was promoted and not demoted yet. Default false."""
    promoted_at: Timestamp | None = None
    """promotedAt is when it began to serve, in UTC; unset if it never served."""
    demoted_at: Timestamp | None = None
    """demotedAt is when it ceased to serve, in UTC; unset if it never ceased."""


class Enclave(Resource):
    """One attempt to run a Container's request."""

    INFO: ClassVar[KindInfo] = KindInfo(
        kind="Enclave",
        plural="enclaves",
        singular="enclave",
        short_names=("encl",),
        namespaced=True,
        description="One attempt to run a Container's request: immutable, with one Pod in its "
        "life. Created only by the operator.",
    )
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Container", ".spec.container.name"),
        Column("Serving", ".status.serving", "boolean"),
        Column("Phase", ".status.phase"),
        Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        Column("Reason", ".status.conditions[?(@.type=='Ready')].reason"),
        Column("Tag", ".spec.tag"),
        Column("Attempt", ".spec.attempt", "integer"),
        Column("Host", ".spec.host"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Node", ".status.node", wide=True),
        Column("Address", ".status.address", wide=True),
        Column("Message", ".status.message", wide=True),
    )

    spec: EnclaveSpec
    status: Annotated[EnclaveStatus, MapType("atomic")] = Field(default_factory=EnclaveStatus)
