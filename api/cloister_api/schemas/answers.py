"""What the API answers, for its description: routes write these as bytes, tests compare the two.

An optional field here is one that may be missing; a field that may be null says so.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import override

from cloister_crds.kinds.container import ContainerPhase, UpdatePhase, UpdateType

__all__ = [
    "Certificate",
    "Container",
    "ContainerMetrics",
    "ContainerUpdate",
    "Deployment",
    "DeploymentResults",
    "Domain",
    "Error",
    "Health",
    "Host",
    "Measurement",
    "NameVerdict",
    "PaymentEvent",
    "Queued",
    "Readiness",
    "Record",
    "RegistryCredentials",
    "RegistryStatus",
    "ReleaseEvent",
    "Secret",
    "SshKey",
    "Verdict",
]


class Record(BaseModel):
    """A JSON object in an answer."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    @classmethod
    @override
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Leave defaults out: a field that has one here is missing, not null."""
        described = handler.resolve_ref_schema(handler(schema))
        for name, field in cls.model_fields.items():
            if not field.is_required():
                described["properties"][field.alias or name].pop("default", None)
        return described


MISSING: Any = None
"""Stands for a field that may be missing."""
Uuid = Annotated[str, Field(json_schema_extra={"format": "uuid"})]
Count = Annotated[int, Field(ge=0)]


class Detail(Record):
    """One thing that is wrong with a request."""

    field: str
    """Field of the body or of the configuration file; empty for the whole."""
    code: str
    """CamelCase word for programs, such as `UnknownField` or `TagNotFound`."""
    message: str
    """Sentence for people: what is wrong and what to do."""


class Error(Record):
    """Why something was not done."""

    error: str
    """Sentence for people."""
    code: Literal[
        "BAD_REQUEST",
        "UNAUTHORIZED",
        "PAYMENT_REQUIRED",
        "FORBIDDEN",
        "NOT_FOUND",
        "METHOD_NOT_ALLOWED",
        "CONFLICT",
        "PRECONDITION_FAILED",
        "PAYLOAD_TOO_LARGE",
        "UNSUPPORTED_MEDIA_TYPE",
        "RATE_LIMITED",
        "INTERNAL_ERROR",
        "BAD_GATEWAY",
        "NotSupportedYet",
        "UNAVAILABLE",
    ]
    """Word for programs."""
    request_id: str
    """Identifier of the request, also in the header X-Request-Id, the log and the audit trail."""
    details: list[Detail] = MISSING
    """One entry for each thing that is wrong."""
    used_by: list[str] = MISSING
    """Names of the containers that keep something from being deleted."""


class Container(Record):
    """A container: one configuration file's containers, run as one enclave."""

    id: Uuid
    """Identifier."""
    deployment_id: str
    """Deployment of its repository; empty until it is seen."""
    name: str
    """Name in the host name."""
    repo: str
    """Repository, `owner/name`."""
    status: ContainerPhase
    """Status word."""
    domain: str
    """Public host name, without scheme: the custom domain where there is one."""
    internal_domain: str
    """Generated host name, which is always served."""
    preview_domain: str = MISSING
    """Host name at which a staged update can be tried."""
    current_tag: str
    """Tag that serves; before the first is ready, the tag that was asked for."""
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
    disable_cc_mode: bool
    """Whether it runs without the TEE of its host."""
    github_app_connected: bool
    """Whether webhooks of the repository act on it."""
    auto_update: bool
    """Whether it follows releases."""
    created_at: datetime
    """When it was created."""
    updated_at: datetime
    """When its record last changed."""
    ssh_port: int = MISSING
    """Port for SSH, of debug containers."""
    host_name: str = MISSING
    """Host that it runs on."""
    host_gpu_type: str = MISSING
    """GPU model of the host."""
    host_cpu_type: str = MISSING
    """Processor model of the host."""
    update_tag: str = MISSING
    """Tag of the update in progress or failed."""
    update_status: UpdatePhase = MISSING
    """How far the update is."""
    update_type: UpdateType = MISSING
    """How the update takes over."""
    error_message: str = MISSING
    """What went wrong."""


class ContainerUpdate(Record):
    """The update of a container; without one only `has_update` is there."""

    has_update: bool
    """Whether there is one."""
    update_deployment_id: str = MISSING
    """Identifier of the candidate; empty until it is made."""
    update_tag: str = MISSING
    """Tag that it brings."""
    update_status: UpdatePhase = MISSING
    """How far it is."""


class Utilization(Record):
    """Utilization in one interval; null where nothing is known of it."""

    time: datetime
    """When it begins."""
    cpu_util: float | None
    """Processors in use, in percent."""
    cpu_mem_util: float | None
    """Memory in use, in percent."""
    cpu_mem_total: float | None
    """Memory in GB of 2^30 bytes."""


class ContainerMetrics(Record):
    """Utilization over time."""

    interval: str
    """Size of a point, such as `15m0s`."""
    data_points: list[Utilization]
    """Ordered by time; the last one holds now."""


class Host(Record):
    """A kind of machine that containers run on."""

    name: str
    """Name, for `host_name`."""
    is_default: bool
    """Whether containers that name none run on it."""
    available_gpu_values: list[Count]
    """GPU counts that can be asked for."""


class Problem(Detail):
    """What is wrong, or noteworthy, with a release."""

    line: int = MISSING
    """Line in the file."""
    column: int = MISSING
    """Column in the file."""


class Verdict(Record):
    """What a create would say of a release."""

    valid: bool
    """Whether there is no error."""
    errors: list[Problem]
    """What is wrong."""
    warnings: list[Problem]
    """What is noteworthy."""
    config: dict[str, Any] | None
    """The parsed configuration file; null when it could not be read."""


class NameVerdict(Record):
    """Whether a name can be had."""

    available: bool
    """Whether it can."""
    name: str
    """The name."""
    reason: str = MISSING
    """Why it cannot."""


class Initdata(Record):
    """What a confidential machine is started with."""

    digest: str
    """Digest that the machine's attestation carries."""
    toml: str
    """The text."""


class Measurement(Record):
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
    initdata: Initdata = MISSING
    """Initdata, where the TEE is the Pod's."""


class Deployment(Record):
    """The containers of one repository."""

    id: Uuid
    """Identifier."""
    repo: str
    """Repository, `owner/name`."""
    default_staging: bool
    """Whether updates wait where a container says nothing."""
    created_at: datetime
    """When it was created."""
    updated_at: datetime
    """When it last changed."""
    instance_count: Count
    """Containers."""
    ready_count: Count
    """Those that serve."""
    failed_count: Count
    """Those that failed."""
    stopped_count: Count
    """Those that are stopped or stopping."""
    deploying_count: Count
    """Those that are pending, deploying or started."""


class DeploymentResult(Record):
    """What came of the update of one container."""

    container_id: Uuid
    """The container."""
    name: str
    """Its name."""
    status: Literal["updating", "skipped", "failed"]
    """What came of it."""
    error: str = MISSING
    """Why it was skipped or failed."""
    container: Container = MISSING
    """Its record, when it is updating."""


class DeploymentResults(Record):
    """What came of an update of a deployment."""

    results: list[DeploymentResult]
    """One entry for each container."""


class Secret(Record):
    """A secret; its value is never answered."""

    id: Uuid
    """Identifier."""
    name: str
    """Name as configuration files write it."""
    repo: str = MISSING
    """Repository, for a secret of one."""
    created_at: datetime
    """When it was created."""
    updated_at: datetime
    """When its value was last written."""
    used_by: list[str]
    """Names of the containers that use it."""


class SshKey(Record):
    """A public key for debug containers."""

    id: Uuid
    """Identifier."""
    name: str
    """Name."""
    key_type: str
    """Type, such as `ssh-ed25519`."""
    created_at: datetime
    """When it was created."""
    used_by: list[str]
    """Names of the containers that use it."""


class Domain(Record):
    """A custom domain and the DNS records that it needs; empty until the operator has seen it."""

    id: Uuid
    """Identifier."""
    domain: str
    """Host name."""
    verification_nonce: str
    """Nonce of the organization in the TXT record."""
    cname_hash: str
    """First label of the CNAME's target."""
    verified: bool
    """Whether both records were found."""
    verified_at: datetime | None
    """When they were; null = never."""
    created_at: datetime
    """When it was added."""
    used_by: list[str]
    """Names of the containers that use it."""
    txt_record_host: str
    """Host of the TXT record."""
    txt_record_value: str
    """Value of the TXT record, exactly as it must be."""
    cname_target: str
    """Target of the CNAME record."""
    cname_configured: bool | None
    """Whether the CNAME record was right at the last look; null = not looked yet."""


class RegistryStatus(Record):
    """Whether there are credentials for a registry."""

    has_credentials: bool
    """Whether there are."""
    username: str = MISSING
    """User name."""
    updated_at: datetime = MISSING
    """When they were last written."""
    expired: bool
    """Whether the registry refuses them."""


class RegistryCredentials(Record):
    """The status of every registry."""

    ghcr: RegistryStatus
    """GitHub's."""
    gcr: RegistryStatus
    """Google's."""
    dockerhub: RegistryStatus
    """Docker Hub."""


class Certificate(Record):
    """A signed certificate."""

    certificate: str
    """Chain in PEM."""
    not_after: datetime
    """When it ends."""


class Queued(Record):
    """The order of a certificate waits."""

    status: Literal["queued"]
    """Always `queued`."""
    message: str
    """What it waits for."""
    retry_after: int
    """Seconds until it is worth asking again, also in Retry-After."""


class ReleaseEvent(Record):
    """What a release event did."""

    deployments: Count
    """Deployments whose source is looked at now."""


class PaymentEvent(Record):
    """What an event of the payment processor did."""

    organizations: Count
    """Organizations whose subscriptions were looked at."""


class Health(Record):
    """The process lives."""

    status: Literal["ok"]
    """Always `ok`."""


class Readiness(Record):
    """What the process waits for."""

    status: Literal["waiting", "ending"]
    """Why it takes no requests."""
    for_: list[str] = Field(default=MISSING, alias="for")
    """What it waits for."""
