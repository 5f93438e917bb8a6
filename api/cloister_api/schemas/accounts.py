"""Bodies and responses about keys, members, usage and models."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from cloister_api.schemas.catalog import ModelType, Pricing, UsageMetric
from cloister_api.schemas.forms import (
    Count,
    Omittable,
    RequestBody,
    ResponseBody,
    Timestamp,
    Uuid,
    whole,
)
from cloister_crds.kinds.organization import Role

Number = Annotated[int | float, WithJsonSchema({"type": "number"})]
"""A number that keeps the form in which it was computed: whole or with a fraction."""
CalendarDate = Annotated[str, Field(json_schema_extra={"format": "date"})]


class ApiKeyResponse(ResponseBody):
    """A regular API key."""

    key: str
    """Full value for the caller's own keys, else 8 characters and 24 asterisks."""
    id: int
    """Number of the key; not secret."""
    name: str
    """Name that usage is reported under."""
    disabled: bool
    """Whether it was switched off."""
    expires_at: Timestamp | None
    """When it ceases to be valid; null if never."""
    max_tokens: int | None
    """How many tokens it may use in all; null means no cap."""
    metadata: dict[str, Any]
    """Free-form."""
    tokens_used: Count
    """Tokens that it used."""
    input_tokens_used: Count
    """Input tokens among them."""
    output_tokens_used: Count
    """Output tokens among them."""
    request_count: Count
    """Requests that it made."""
    is_owner: bool
    """Whether the caller created it."""
    created_by: str
    """User who created it, or whose admin key did."""
    created_at: Timestamp
    """When it was created."""
    last_used_at: Timestamp | None
    """When it was last used; null if never."""


class AuditRowResponse(ResponseBody):
    """An attempted change."""

    id: int
    """Number of the row."""
    at: Timestamp
    """When it was attempted."""
    request_id: str
    """Identifier of the request."""
    actor: str
    """User who created the admin key; for a command `command line:` and the user of the machine."""
    via: Literal["key", "session", "command", "system"]
    """How it was attempted: with an admin key, in the dashboard, by a command of the installation,
    or by something that happened, such as a notice of the payment processor."""
    key_id: str | None
    """Identifier of the admin key; null if none was used."""
    session_id: str | None
    """Identifier of the session of the dashboard; null if it was none."""
    action: str
    """What was attempted, such as `container.create`."""
    target: str
    """Identifier of what it was done to; its name where it has none yet."""
    result: str
    """HTTP status and code, such as `201` or `409 CONFLICT`; of a command `ok`."""


class MessageResponse(ResponseBody):
    """A confirmation."""

    message: str
    """What was done."""


class Documented:
    """Base of responses that are dataclasses: a usage may have ten thousand of them."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(use_attribute_docstrings=True)


@dataclass(slots=True)
class ModelUsage(Documented):
    """Use of one model."""

    tokens: Count
    """Input and output tokens."""
    input_tokens: Count
    """Input tokens."""
    output_tokens: Count
    """Output tokens."""
    requests: Count
    """Requests."""


@dataclass(slots=True)
class PaidModelUsage(Documented):
    """Use of one model, with its cost."""

    tokens: Count
    """Input and output tokens."""
    input_tokens: Count
    """Input tokens."""
    output_tokens: Count
    """Output tokens."""
    requests: Count
    """Requests."""
    cost: float
    """Cost in dollars."""


@dataclass(slots=True)
class NamedKeyUsage(Documented):
    """Use of the keys of one name."""

    total_tokens: Count
    """Input and output tokens."""
    total_input_tokens: Count
    """Input tokens."""
    total_output_tokens: Count
    """Output tokens."""
    total_requests: Count
    """Requests."""
    cost: float
    """Cost in dollars."""
    models: dict[str, PaidModelUsage]
    """Use by model."""


@dataclass(slots=True)
class UsageResponse(Documented):
    """Use of an organization."""

    tokens: Count
    """Input and output tokens."""
    input_tokens: Count
    """Input tokens."""
    output_tokens: Count
    """Output tokens."""
    requests: Count
    """Requests."""
    cost: float
    """Cost in dollars."""
    keys: dict[str, NamedKeyUsage]
    """Use by name of the key."""


@dataclass(slots=True)
class KeyUsageResponse(Documented):
    """Use of one key."""

    prompt_tokens: Count
    """Input tokens."""
    completion_tokens: Count
    """Output tokens."""
    requests: Count
    """Requests."""
    cost: float
    """Cost in dollars."""


@dataclass(slots=True)
class UsagePoint(Documented):
    """Use in one interval."""

    time: Timestamp
    """When it begins."""
    tokens: Count
    """Input and output tokens."""
    input_tokens: Count
    """Input tokens."""
    output_tokens: Count
    """Output tokens."""
    requests: Count
    """Requests."""
    models: dict[str, ModelUsage]
    """Use by model."""


@dataclass(slots=True)
class TimeSeriesResponse(Documented):
    """Use over time."""

    data_points: list[UsagePoint]
    """Ordered by time; the last one holds now."""
    interval: str
    """Size of a point, such as `15m0s`."""


class UsageRest(ResponseBody):
    """Use of the groups that are not shown one by one."""

    tokens: Count
    """Input and output tokens."""
    input_tokens: Count
    """Input tokens."""
    output_tokens: Count
    """Output tokens."""
    requests: Count
    """Requests."""
    cost: float
    """Cost in dollars."""


class UsageGroup(UsageRest):
    """Use of a key, of a model, or of a model by a key."""

    key: Omittable[str] = None
    """Name of the key, where it is grouped by it."""
    model: Omittable[str] = None
    """Name of the model, where it is grouped by it."""


class BreakdownPoint(ResponseBody):
    """Use in one interval by group."""

    time: Timestamp
    """When it begins."""
    groups: list[UsageGroup]
    """Those with use in it, of the 50 groups that cost most in the window."""
    others: Omittable[UsageRest] = None
    """Sum of all other groups; absent without use."""


class BreakdownResponse(ResponseBody):
    """Use over time by group."""

    data_points: list[BreakdownPoint]
    """Ordered by time; the last one holds now."""
    interval: str
    """Size of a point, such as `15m0s`."""


class RunTimeRecord(ResponseBody):
    """How long a container served with one size."""

    container_id: Uuid
    """Identifier of the container, which may be deleted by now."""
    name: str
    """Its name."""
    cpus: Count
    """Processors of the enclave."""
    memory_mb: Count
    """Memory of the enclave in MB."""
    gpus: Count
    """GPUs of the enclave."""
    seconds: float
    """How long it served."""


class RunTimeResponse(ResponseBody):
    """How long the containers of the organization served."""

    metering: bool
    """Whether run time is metered now; without it nothing is added."""
    containers: list[RunTimeRecord]
    """One entry for each container and size."""


class Transaction(ResponseBody):
    """An invoice or a charge."""

    id: str
    """Identifier."""
    date: Timestamp
    """When it was made."""
    type: Literal["Invoice", "Charge"]
    """Which of the two."""
    description: str
    """What for."""
    amount: Number
    """Amount in the currency's major unit."""
    status: str
    """Such as `completed`."""
    invoice_url: Omittable[str] = None
    """Where the invoice can be seen; only on invoices."""


class TransactionsResponse(ResponseBody):
    """The payments of an organization."""

    transactions: list[Transaction]
    """Newest first."""


class ListedModel(ResponseBody):
    """A model as clients of inference know it."""

    model_config = ConfigDict(
        alias_generator=lambda name: name if name == "owned_by" else to_camel(name)
    )

    id: str
    """Identifier in requests."""
    object: Literal["model"]
    """Always `model`."""
    created: int
    """When it was added, in Unix seconds."""
    owned_by: str
    """Name of the installation."""
    type: ModelType
    """What it is for."""
    multimodal: bool
    """Whether it takes more than text."""
    tool_calling: bool
    """Whether it calls tools."""
    pricing: Pricing
    """Prices."""
    endpoints: list[str]
    """All its paths."""
    usage_metric: UsageMetric
    """What it is paid by."""
    context_window_tokens: Omittable[Count] = None
    """Tokens that fit."""
    experimental: Omittable[bool] = None
    """Whether it may go without notice."""
    deprecated: Omittable[bool] = None
    """Whether it goes."""
    deprecation_date: Omittable[CalendarDate] = None
    """When it goes."""


class ModelListResponse(ResponseBody):
    """The models."""

    object: Literal["list"]
    """Always `list`."""
    data: list[ListedModel]
    """The models."""


class RejectedUsageEvent(ResponseBody):
    """An event that was not taken."""

    index: Count
    """Its place in the report."""
    reason: str
    """What is wrong."""


class UsageReportResponse(ResponseBody):
    """Result of a report."""

    accepted: Count
    """Events that count."""
    duplicates: Count
    """Events that counted before."""
    rejected: list[RejectedUsageEvent]
    """Events that were not taken."""


class KeyCheckResponse(ResponseBody):
    """A key may be used."""

    valid: Literal[True]
    """Always true."""


Days = Annotated[int, Field(ge=1, le=3650), BeforeValidator(whole)]


class PutMemberRequest(RequestBody):
    """Role that the user gets in the organization."""

    role: str = Field(json_schema_extra={"enum": [*Role]})
    """What the person may do: an Admin everything, a Developer also deploys, updates and stops
    containers, an Auditor also reads the audit trail and invoices, a Member reads."""


class CreateAdminKeyRequest(RequestBody):
    """A new admin key of who is signed in."""

    name: str = Field(min_length=1, max_length=128)
    """Name for people, which says what the key is for."""
    days: Days | None = None
    """Days until it expires; left out = it does not."""
