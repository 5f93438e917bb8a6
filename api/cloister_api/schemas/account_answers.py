"""Answers about keys, usage and models, for the description of the API."""

from datetime import date, datetime
from typing import Any, Literal

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from cloister_api.schemas.answers import MISSING, Count, Record
from cloister_api.schemas.catalog import ModelType, Pricing, UsageMetric

__all__ = [
    "ApiKey",
    "KeyUsage",
    "Message",
    "ModelList",
    "ReportTaken",
    "TimeSeries",
    "Transactions",
    "Usage",
    "Valid",
]


class ApiKey(Record):
    """A regular API key."""

    key: str
    """Full value for the caller's own keys, else 8 characters and 24 asterisks."""
    name: str
    """Name that usage is reported under."""
    disabled: bool
    """Whether it was switched off."""
    expires_at: datetime | None
    """When it ceases to be valid; null = never."""
    max_tokens: int | None
    """How many tokens it may use in all; null = no cap."""
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
    created_at: datetime
    """When it was created."""
    last_used_at: datetime | None
    """When it was last used; null = never."""


class Message(Record):
    """A confirmation."""

    message: str
    """What was done."""


class ModelUsage(Record):
    """Use of one model."""

    tokens: Count
    """Input and output tokens."""
    input_tokens: Count
    """Input tokens."""
    output_tokens: Count
    """Output tokens."""
    requests: Count
    """Requests."""


class PaidModelUsage(ModelUsage):
    """Use of one model, with its cost."""

    cost: float
    """Cost in dollars."""


class NamedKeyUsage(Record):
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


class Usage(Record):
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


class KeyUsage(Record):
    """Use of one key."""

    prompt_tokens: Count
    """Input tokens."""
    completion_tokens: Count
    """Output tokens."""
    requests: Count
    """Requests."""
    cost: float
    """Cost in dollars."""


class DataPoint(ModelUsage):
    """Use in one interval."""

    time: datetime
    """When it begins."""
    models: dict[str, ModelUsage]
    """Use by model."""


class TimeSeries(Record):
    """Use over time."""

    data_points: list[DataPoint]
    """Ordered by time; the last one holds now."""
    interval: str
    """Size of a point, such as `15m0s`."""


class Transaction(Record):
    """An invoice or a charge."""

    id: str
    """Identifier."""
    date: datetime
    """When it was made."""
    type: Literal["Invoice", "Charge"]
    """Which of the two."""
    description: str
    """What for."""
    amount: float
    """Amount in the currency's major unit."""
    status: str
    """Such as `completed`."""
    invoice_url: str = MISSING
    """Where the invoice can be seen; on invoices alone."""


class Transactions(Record):
    """The payments of an organization."""

    transactions: list[Transaction]
    """Newest first."""


class ListedModel(Record):
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
    context_window_tokens: Count = MISSING
    """Tokens that fit."""
    experimental: bool = MISSING
    """Whether it may go without notice."""
    deprecated: bool = MISSING
    """Whether it goes."""
    deprecation_date: date = MISSING
    """When it goes."""


class ModelList(Record):
    """The models."""

    object: Literal["list"]
    """Always `list`."""
    data: list[ListedModel]
    """The models."""


class RejectedEvent(Record):
    """An event that was not taken."""

    index: Count
    """Its place in the report."""
    reason: str
    """What is wrong."""


class ReportTaken(Record):
    """What came of a report."""

    accepted: Count
    """Events that count."""
    duplicates: Count
    """Events that counted before."""
    rejected: list[RejectedEvent]
    """Events that were not taken."""


class Valid(Record):
    """A key may be used."""

    valid: Literal[True]
    """Always true."""
