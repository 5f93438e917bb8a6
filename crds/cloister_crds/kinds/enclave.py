"""Enclave: one attempt to run a request. Immutable, mortal, one Pod in its life."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from cloister_crds.kinds.meta import KindInfo, Model, Resource, Status
from cloister_crds.kinds.request import RequestRecord
from cloister_crds.schema.markers import Cel, Column, ListType

__all__ = [
    "BootStage",
    "ContainerState",
    "ContainerStateName",
    "Enclave",
    "EnclavePhase",
    "EnclaveSpec",
    "EnclaveStatus",
    "EnclaveSummary",
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
    """It failed for good, or was lost; it has no Pod or soon has none."""
    ENDED = "Ended"
    """It was told to end."""


class OwningContainer(Model):
    """The Container that an Enclave belongs to."""

    name: str
    """name of the Container (metadata.name)."""
    uid: str
    """uid of the Container."""


class ImageFacts(Model):
    """An image as the registry described it when the attempt was decided."""

    container: str
    """container of the file that uses it."""
    image: str
    """image reference with digest, as the kubelet pulls it."""
    entrypoint: Annotated[tuple[str, ...], Field(max_length=256)] | None = None
    """entrypoint of the image; unset = none."""
    cmd: Annotated[tuple[str, ...], Field(max_length=256)] | None = None
    """cmd of the image; unset = none."""
    env: Annotated[tuple[str, ...], Field(max_length=1024)] = ()
    """env of the image, ``NAME=value``."""
    user: str = ""
    """user of the image; empty = root."""
    working_dir: str = ""
    """workingDir of the image; empty = /."""


class EnclaveSummary(Model):
    """What the parsed file says, for those who read the Enclave."""

    cpus: int
    """cpus of the file."""
    memory_mb: int = Field(alias="memoryMB")
    """memoryMB of the file, in MB."""
    gpus: int = 0
    """gpus of the enclave: the request's, else the file's."""
    containers: Annotated[tuple[str, ...], ListType("atomic"), Field(max_length=64)] = ()
    """containers of the file, in order."""
    upstream: str = ""
    """upstream is the container that the shim routes to."""
    unenforced: Annotated[tuple[str, ...], ListType("atomic"), Field(max_length=64)] = ()
    """unenforced lists fields of the file that the Host cannot enforce. Default none."""


class EnclaveSpec(Model):
    """What the attempt was made from. Immutable as a whole."""

    CEL: ClassVar[tuple[Cel, ...]] = (
        Cel("self == oldSelf", "an Enclave is immutable; change the Container it belongs to"),
    )

    container: OwningContainer
    """container that it belongs to."""
    request: RequestRecord
    """request that it was made from."""
    revision: str
    """revision names the request; promote refers to it."""
    attempt: Annotated[int, Field(ge=1)]
    """attempt counts the Enclaves of the revision from 1."""
    losses: Annotated[int, Field(ge=0)] = 0
    """losses counts the attempts in a row that were lost before this one; the back-off of the next
    one follows from it. Default 0."""
    repo: str
    """repo, ``owner/name``."""
    tag: str
    """tag that was resolved."""
    commit: str
    """commit that the tag pointed to."""
    config_digest: str
    """configDigest is ``sha256:`` and the hash of the file's raw bytes."""
    config_file: str
    """configFile is the name under which the file was found."""
    summary: EnclaveSummary
    """summary of the parsed file."""
    images: Annotated[
        tuple[ImageFacts, ...], ListType("map", keys=("container",)), Field(max_length=64)
    ] = ()
    """images as the registry described them."""
    debug: bool = False
    """debug enclave or not."""
    host: str
    """host that it runs on."""
    hostnames: Annotated[tuple[str, ...], ListType("atomic"), Field(max_length=4)] = ()
    """hostnames that it serves, the public one first."""


class BootStage(Model):
    """A step of the start."""

    name: str
    """name of the stage."""
    status: str
    """status: pending, ok, skipped, warning or failed."""
    duration_ms: int | None = None
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

    name: str
    """name in the file."""
    state: ContainerStateName
    """state: Waiting, Running or Terminated."""
    healthy: bool | None = None
    """healthy as its healthcheck says; unset = it has none, or was not checked yet."""
    restart_count: int = 0
    """restartCount since the Pod started."""
    exit_code: int | None = None
    """exitCode of its last end; unset = it never ended."""
    message: Annotated[str, Field(max_length=4096)] = ""
    """message: reason and text of a wait or an end."""


class EnclaveStatus(Status):
    """What is so."""

    phase: EnclavePhase | None = None
    """phase of the attempt; unset until the operator has looked."""
    reason: str = ""
    """reason of the phase: a word of the reasons table; empty when all is well."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """message of the phase for people."""
    pod_uid: str = Field(default="", alias="podUID")
    """podUID of its Pod; empty = none was seen. Once set, no second Pod is ever made."""
    node: str = ""
    """node that the Pod runs on."""
    address: str = ""
    """address of the Pod, IPv4."""
    boot_stages: Annotated[tuple[BootStage, ...], ListType("atomic"), Field(max_length=32)] = ()
    """bootStages of the start."""
    measurement: str = ""
    """measurement of the enclave; empty where there is no TEE."""
    containers: Annotated[
        tuple[ContainerState, ...], ListType("map", keys=("name",)), Field(max_length=64)
    ] = ()
    """containers of the enclave and how they are."""
    started_at: datetime | None = None
    """startedAt is when the Pod was first seen up, in UTC."""
    ready_at: datetime | None = None
    """readyAt is when the enclave was first ready, in UTC."""
    promoted_at: datetime | None = None
    """promotedAt is when it began to serve, in UTC; unset = it never served."""
    demoted_at: datetime | None = None
    """demotedAt is when it ceased to serve, in UTC; unset = it never ceased."""


class Enclave(Resource):
    """One attempt to run a Container's request."""

    INFO: ClassVar[KindInfo] = KindInfo(
        kind="Enclave",
        plural="enclaves",
        singular="enclave",
        short_names=("encl",),
        namespaced=True,
        description="One attempt to run a Container's request: immutable, with one Pod in its "
        "life. Made by the operator alone.",
    )
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Container", ".spec.container.name"),
        Column("Phase", ".status.phase"),
        Column("Tag", ".spec.tag"),
        Column("Host", ".spec.host"),
        Column("Reason", ".status.reason"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Node", ".status.node", wide=True),
        Column("Address", ".status.address", wide=True),
    )

    spec: EnclaveSpec
    status: EnclaveStatus = Field(default_factory=EnclaveStatus)
