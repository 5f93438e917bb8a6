"""Responses about containers: record, status, events, hosts, releases."""

from typing import Any, Literal

from pydantic import ConfigDict

from cloister_api.schemas.containers import api_name
from cloister_api.schemas.forms import Count, Omittable, ResponseBody, Timestamp, Uuid
from cloister_crds.kinds.container import ContainerPhase, UpdatePhase, UpdateType
from cloister_crds.kinds.enclave import ContainerStateName, EnclavePhase
from cloister_crds.kinds.host import TEE, NetworkIsolation
from cloister_crds.kinds.meta import ConditionStatus
from cloister_crds.lifecycle.admission.secrets import SecretOwner


class ReleaseProblem(ResponseBody):
    """What is wrong, or noteworthy, with a release."""

    field: str
    """Field of the body or of the configuration file; empty for the whole."""
    code: str
    """CamelCase word for programs, such as `UnknownField` or `TagNotFound`."""
    message: str
    """Sentence for people: what is wrong and what to do."""
    line: Omittable[int] = None
    """Line in the file."""
    column: Omittable[int] = None
    """Column in the file."""


class ContainerResponse(ResponseBody):
    """A container: one configuration file's containers, run as one enclave."""

    model_config = ConfigDict(alias_generator=api_name)

    id: Uuid
    """Identifier."""
    deployment_id: Omittable[Uuid] = None
    """Deployment of its repository; left out for a moment after the manifest of the first container
    of a repository was applied."""
    name: str
    """Name in the host name."""
    repo: str
    """Repository, `owner/name`."""
    status: ContainerPhase
    """Status word."""
    domain: str
    """Public host name that serves, without scheme; before the first is ready, the requested
    one."""
    internal_domain: str
    """Generated host name, which is always served."""
    current_tag: str
    """Tag that serves or last served; before the first is ready, the requested tag."""
    requested_tag: str
    """Desired tag: what a start, an update or automatic updates bring; `current_tag` when
    nothing else is under way."""
    cpus: Count
    """Processors of the enclave."""
    gpus: Count
    """GPUs of the enclave."""
    memory_mb: Count
    """Memory of the enclave in MB."""
    debug: bool
    """Whether it is a debug container."""
    variables: dict[str, str]
    """Values of bare names in the file's env."""
    secrets: list[str]
    """Organization secrets that the file may use."""
    ssh_keys: list[str]
    """SSH keys that may log in."""
    staging: bool
    """Whether updates wait for accept."""
    disable_confidential: bool
    """Whether it runs without the TEE of its host."""
    github_connected: bool
    """Whether webhooks of the repository act on it; false where the installation accepts none."""
    auto_update: bool
    """Whether it follows releases."""
    created_at: Timestamp
    """When it was created."""
    updated_at: Timestamp
    """When its record last changed; the fraction tells changes in one second apart, no more."""
    ssh_port: Omittable[int] = None
    """Port for SSH, of debug containers."""
    host_name: Omittable[str] = None
    """Host that it runs on."""
    host_gpu_type: Omittable[str] = None
    """GPU model of the host."""
    host_cpu_type: Omittable[str] = None
    """Processor model of the host."""
    update_tag: Omittable[str] = None
    """Tag of the update in progress or failed."""
    update_status: Omittable[UpdatePhase] = None
    """How far the update is."""
    update_type: Omittable[UpdateType] = None
    """How the update is promoted."""
    preview_domain: Omittable[str] = None
    """Host name at which a staged update can be tried."""
    replaces: Omittable[Uuid] = None
    """Container that it replaces, as long as that exists."""
    replaced_by: Omittable[Uuid] = None
    """Container that replaces it; it serves until that one is ready, and is then deleted."""
    error_message: Omittable[str] = None
    """What went wrong."""
    warnings: Omittable[list[ReleaseProblem]] = None
    """What is noteworthy: `TagMoved`, where the tag points to another commit than the one that was
    deployed from it and is kept."""


class ContainerUpdateResponse(ResponseBody):
    """The update of a container; without one only `has_update` is there."""

    has_update: bool
    """Whether there is one."""
    update_deployment_id: Omittable[Uuid] = None
    """Identifier of the candidate; until that is made, one of the request."""
    update_tag: Omittable[str] = None
    """Tag that it brings."""
    update_status: Omittable[UpdatePhase] = None
    """How far it is."""


class UtilizationPoint(ResponseBody):
    """Utilization in one interval; null where nothing is known."""

    time: Timestamp
    """When it begins."""
    cpu_util: float | None
    """Processors in use, in percent."""
    cpu_mem_util: float | None
    """Memory in use, in percent."""
    cpu_mem_total: float | None
    """Memory in GB of 2^30 bytes."""
    gpu_util: float | None
    """GPUs in use, in percent."""
    gpu_mem_util: float | None
    """Memory of the GPUs in use, in percent."""
    gpu_mem_total: float | None
    """Memory of the GPUs in GB of 2^30 bytes."""


class ContainerMetricsResponse(ResponseBody):
    """Utilization over time."""

    interval: str
    """Size of a point, such as `15m0s`."""
    data_points: list[UtilizationPoint]
    """Ordered by time; the last one holds now."""


class HostResponse(ResponseBody):
    """A kind of machine that containers run on."""

    name: str
    """Name, for `host_name`."""
    is_default: bool
    """Whether containers that name none run on it."""
    available_gpu_values: list[Count]
    """GPU counts that may be requested."""
    tee: TEE
    """Trusted execution environment; `None`: nothing on it is confidential."""
    network_isolation: NetworkIsolation
    """What separates the containers of one enclave on the network."""
    ready: bool
    """Whether enclaves can be placed on it."""
    gpu_type: Omittable[str] = None
    """GPU model."""
    cpu_type: Omittable[str] = None
    """Processor model."""


class ReleaseResponse(ResponseBody):
    """A published release of a repository."""

    tag: str
    """Its tag."""
    published_at: Timestamp
    """When it was published; of plain git the date of the tag."""
    prerelease: bool
    """Whether the forge calls it a pre-release."""
    commit: Omittable[str] = None
    """Commit of the tag, where the list of the source has it."""


class DeadlinesResponse(ResponseBody):
    """How long an enclave of a release may take to start."""

    pull_seconds: int
    """Seconds from its creation until all of its containers must have started."""
    boot_seconds: int
    """Seconds from then until it must be ready: the installation's setting, and the longest time
    that a health check of the file may need."""


class FileResponse(ResponseBody):
    """The configuration file of a release, as far as its problems are about it."""

    name: str
    """Its name in the repository."""
    digest: str
    """`sha256:` and the hash of its bytes."""
    lines: dict[str, str]
    """Lines around the problems by number, each up to 400 characters of it; empty without
    problems."""


class NamedSecretResponse(ResponseBody):
    """A secret that a configuration file names."""

    name: str
    """Its name."""
    found: SecretOwner
    """Who has it: one of the `organization` must be in `secrets` of the create."""


class ReleaseVerdictResponse(ResponseBody):
    """Whether a create would take a release."""

    valid: bool
    """Whether there is no error."""
    errors: list[ReleaseProblem]
    """What is wrong."""
    warnings: list[ReleaseProblem]
    """What is noteworthy."""
    config: dict[str, Any] | None
    """The parsed configuration file; null when it could not be read."""
    deadlines: Omittable[DeadlinesResponse] = None
    """How long its enclave may take to start; absent when the file could not be read."""
    commit: Omittable[str] = None
    """Commit of the tag; absent when the release was not found."""
    published_at: Omittable[Timestamp] = None
    """When the release was published."""
    file: Omittable[FileResponse] = None
    """The file that was judged."""
    secrets: Omittable[list[NamedSecretResponse]] = None
    """Secrets that the file names, by name; absent when it could not be read."""
    hostname: Omittable[str] = None
    """Public host name that the container will have; absent without `instance_name` and
    `container_id`."""


class NameVerdictResponse(ResponseBody):
    """Whether a name can be had."""

    available: bool
    """Whether it can be had."""
    name: str
    """The name."""
    internal_domain: Omittable[str] = None
    """Host name that a new container of the name has; absent if the name is invalid."""
    reason: Omittable[str] = None
    """Why it cannot."""


class MeasuredInitdata(ResponseBody):
    """What a confidential machine is started with."""

    digest: str
    """Digest that the machine's attestation carries."""
    toml: str
    """The text."""


class MeasurementResponse(ResponseBody):
    """What identifies the enclave that serves."""

    repo: str
    """Repository."""
    tag: str
    """Tag."""
    commit: str
    """Commit of the tag."""
    config_file: str
    """Name of the configuration file."""
    digest: str
    """Digest of the document."""
    document: Any
    """The measurement document."""
    documents: dict[str, str]
    """The documents whose digests it names, by name."""
    initdata: Omittable[MeasuredInitdata] = None
    """Initdata, where the TEE is the Pod's."""


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
    """When that was seen: when it ended."""
    started_at: Omittable[Timestamp] = None
    """When its Pod was first up; absent if it never was, and in entries of earlier releases."""
    ready_at: Omittable[Timestamp] = None
    """When it was first ready; absent if it never was."""
    promoted_at: Omittable[Timestamp] = None
    """When it began to serve; absent if it never did."""
    reason: Omittable[str] = None
    """Reason of its last phase; absent when all was well."""
    measurement: Omittable[str] = None
    """Digest of its measurement document; absent if it had none."""


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
