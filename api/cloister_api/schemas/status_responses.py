"""Responses about how a container is, beyond its record."""

from typing import Literal

from cloister_api.schemas.response import Count, Omittable, ResponseBody, Timestamp, Uuid
from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.enclave import ContainerStateName, EnclavePhase
from cloister_crds.kinds.meta import ConditionStatus

__all__ = [
    "BootStageResponse",
    "ConditionResponse",
    "ContainerStateResponse",
    "ContainerStatusResponse",
    "EnclaveResponse",
    "EventResponse",
    "HistoryResponse",
    "LatestReleaseResponse",
    "ManagerResponse",
]


class ConditionResponse(ResponseBody):
    """One observation about a container."""

    type: str
    """What it is about, such as `Ready`."""
    status: ConditionStatus
    """Whether it holds."""
    reason: str
    """CamelCase word for programs."""
    message: str
    """Sentence for people: what is, and what to do."""
    since: Timestamp
    """When `status` last changed."""
    meaning: Omittable[str] = None
    """What the reason means in general; absent for one that this release does not know."""
    remedy: Omittable[str] = None
    """What to do about the reason in general; absent where there is nothing to do."""


class BootStageResponse(ResponseBody):
    """A step of the start of an enclave."""

    name: str
    """Name, such as `network`."""
    status: str
    """`pending`, `ok`, `skipped`, `warning` or `failed`."""
    duration_ms: Omittable[Count] = None
    """How long it took, in milliseconds; absent while it runs."""
    detail: Omittable[str] = None
    """More about it, for people."""


class ContainerStateResponse(ResponseBody):
    """One container of the configuration file."""

    name: str
    """Its name in the file."""
    state: ContainerStateName
    """What it does."""
    restart_count: Count
    """How often it was restarted."""
    healthy: Omittable[bool] = None
    """What its health check says; absent when it has none, or was not checked yet."""
    exit_code: Omittable[int] = None
    """Exit code of its last end; absent when it never ended."""
    message: Omittable[str] = None
    """Why it waits or ended."""


class EnclaveResponse(ResponseBody):
    """An attempt to run a request."""

    enclave: str
    """Name of the Enclave."""
    revision: str
    """Name of the request."""
    attempt: Count
    """Number of the attempt, from 1."""
    tag: str
    """Tag."""
    commit: str
    """Commit of the tag."""
    config_digest: str
    """Digest of the configuration file."""
    host: str
    """Host that it runs on."""
    boot_stages: list[BootStageResponse]
    """Steps of its start, in order."""
    containers: list[ContainerStateResponse]
    """Containers of the file."""
    phase: Omittable[EnclavePhase] = None
    """How far it is; absent before the operator has looked at it."""
    reason: Omittable[str] = None
    """Reason of the phase; absent when all is well."""
    message: Omittable[str] = None
    """What is wrong with it."""
    measurement: Omittable[str] = None
    """Digest of its measurement document; absent until it has a Pod."""
    initdata: Omittable[str] = None
    """Digest of the initdata of its machine, where one is measured."""
    started_at: Omittable[Timestamp] = None
    """When its Pod was first up."""
    ready_at: Omittable[Timestamp] = None
    """When it was first ready."""
    promoted_at: Omittable[Timestamp] = None
    """When it began to serve."""


class HistoryResponse(ResponseBody):
    """An enclave that served or failed."""

    enclave: str
    """Its name."""
    tag: str
    """Tag that it ran."""
    commit: str
    """Commit that it ran."""
    outcome: str
    """`Served`, `Failed` or `Ended`."""
    at: Timestamp
    """When that was seen."""


class LatestReleaseResponse(ResponseBody):
    """The newest release of the repository."""

    tag: str
    """Its tag."""
    commit: str
    """Commit of the tag."""
    published_at: Timestamp
    """When it was published."""
    followed: bool
    """Whether it is later than the requested tag, and wanted instead."""


class ManagerResponse(ResponseBody):
    """A GitOps tool that manages fields of the container, which are changed in its repository."""

    manager: str
    """Its name as a field manager."""
    fields: list[str]
    """Fields that it manages."""


class ContainerStatusResponse(ResponseBody):
    """How a container is: what serves, what is on its way, and why."""

    id: Uuid
    """Identifier of the container."""
    status: ContainerPhase
    """Status word."""
    observed: bool
    """Whether the operator has seen the last change; until then the rest is about the state
    before."""
    conditions: list[ConditionResponse]
    """Observations, one of each type."""
    history: list[HistoryResponse]
    """The last ten enclaves, newest first."""
    unenforced: list[str]
    """Fields of the file that the host cannot enforce."""
    managed_by: list[ManagerResponse]
    """GitOps tools that manage some of its fields."""
    serving: Omittable[EnclaveResponse] = None
    """The enclave that serves; absent = none does."""
    candidate: Omittable[EnclaveResponse] = None
    """The enclave on its way, or of the update that failed; absent = there is none."""
    latest_release: Omittable[LatestReleaseResponse] = None
    """Newest release; absent without `auto_update`."""


class EventResponse(ResponseBody):
    """Something that happened to a container."""

    at: Timestamp
    """When it last happened."""
    type: Literal["Normal", "Warning"]
    """Whether something is wrong."""
    reason: str
    """CamelCase word for programs."""
    message: str
    """Sentence for people."""
    count: Count
    """How often it happened."""
