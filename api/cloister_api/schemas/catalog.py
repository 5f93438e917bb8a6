"""The records of the model catalog (spec 11.2), and responses to enclaves, probes and webhooks."""

from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from cloister_api.schemas.forms import Count, Omittable, ResponseBody, Timestamp, is_none


class Part(BaseModel):
    """A part of a record: names as on the wire, nothing unknown, no text for a number."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        defer_build=True,
        extra="forbid",
        frozen=True,
        populate_by_name=False,
    )


class ModelType(StrEnum):
    """What a model is for."""

    CHAT = "chat"
    """Conversation."""
    SAFETY = "safety"
    """Judging texts."""
    EMBEDDING = "embedding"
    """Vectors of texts."""
    DOCUMENT = "document"
    """Documents to text."""
    AUDIO = "audio"
    """Speech to text."""
    TTS = "tts"
    """Text to speech."""
    TOOL = "tool"
    """A tool that models call."""


class UsageMetric(StrEnum):
    """What a model is paid by."""

    TOKENS = "tokens"
    """By tokens."""
    REQUESTS = "requests"
    """By requests."""


class Effort(StrEnum):
    """How much a model reasons."""

    LOW = "low"
    """Little."""
    MEDIUM = "medium"
    """Some."""
    HIGH = "high"
    """Much."""


class Reasoning(StrEnum):
    """Setting of reasoning that a score belongs to."""

    OFF = "off"
    """Without reasoning."""
    ON = "on"
    """With reasoning."""
    LOW = "low"
    """With little."""
    MEDIUM = "medium"
    """With some."""
    HIGH = "high"
    """With much."""


class HistoryPolicy(StrEnum):
    """Which reasoning goes back to the model with the history."""

    ALL = "all"
    """All of it."""
    TOOL_CALL_ONLY = "tool-call-only"
    """That of tool calls."""


def a_date(text: str) -> str:
    """Refuse a text that is not a date.

    Raises
    ------
    PydanticCustomError
        When it is not one.
    """
    try:
        date.fromisoformat(text)
    except ValueError as error:
        raise PydanticCustomError("date", "write a date such as 2027-01-31") from error
    return text


def texts(value: Any) -> list[str]:
    """Return all texts of a JSON value but keys."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for each in value.values() for text in texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in texts(each)]
    return []


EFFORT_TOKEN = "$EFFORT"  # noqa: S105 - not a secret
"""Placeholder in request parameters of the effort that `effortMap` gives."""
Number = (
    Annotated[int, Field(ge=0, strict=True)]
    | Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
)
Whole = Annotated[int, Field(ge=0, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, StringConstraints(max_length=20_000)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=253)]
EndpointPath = Annotated[str, StringConstraints(pattern=r"^/[^\s?#]*$", max_length=253)]
Parameters = dict[str, Any]


class Pricing(Part):
    """Prices in US dollars."""

    input_token_price_per_1m: Annotated[Number, Field(alias="inputTokenPricePer1M")]
    """For a million input tokens."""
    output_token_price_per_1m: Annotated[Number, Field(alias="outputTokenPricePer1M")]
    """For a million output tokens."""
    request_price: Number
    """For a request."""
    cached_input_token_price_per_1m: Annotated[
        Number | None, Field(alias="cachedInputTokenPricePer1M", exclude_if=is_none)
    ] = None
    """For a million cached input tokens; unset means the price of input tokens."""


class CategoryBreakdown(Part):
    """Scores by category."""

    child_endangerment: Whole | None = None
    """Endangerment of children."""
    mass_violence: Whole | None = None
    """Mass violence."""
    self_harm: Whole | None = None
    """Self-harm."""


class SafetyMetadata(Part):
    """About the scores."""

    date: Text
    """When they were measured."""


class Safety(Part):
    """How safe a model is."""

    score: Whole
    """Score over all."""
    category_breakdown: CategoryBreakdown | None = None
    """Scores by category."""
    metadata: SafetyMetadata | None = None
    """About the scores."""


class EndpointParams(Part):
    """Request parameters that switch reasoning at one endpoint."""

    enable: Parameters
    """Parameters that switch it on."""
    disable: Parameters | None = None
    """Parameters that switch it off; unset if it cannot be."""


class ReasoningConfig(Part):
    """How reasoning is requested."""

    default_enabled: Flag | None = None
    """Whether it is on when nothing is said."""
    supports_effort: Flag | None = None
    """Whether an effort can be requested."""
    supports_toggle: Flag | None = None
    """Whether it can be switched."""
    reasoning_history_policy: HistoryPolicy | None = None
    """Which reasoning goes back with the history."""
    effort_map: dict[Effort, Word] | None = None
    """What the model calls each effort."""
    params: dict[EndpointPath, EndpointParams] | None = None
    """Request parameters by endpoint."""


class ChatConfig(Part):
    """What a chat needs to know."""

    attributes: list[Word] | None = None
    """Words such as ``smart`` and ``fast``."""
    context_window_tokens: Whole | None = None
    """Tokens that fit."""
    description_short: Text | None = None
    """A short description."""
    intelligence: dict[Reasoning, Whole] | None = None
    """Scores by setting of reasoning."""
    reasoning_config: ReasoningConfig | None = None
    """How reasoning is requested; unset if the model does not reason."""


class ModelRecord(Part):
    """A hosted model."""

    model_name: Word
    """Identifier in requests."""
    name: Text
    """Name."""
    name_short: Text
    """Short name."""
    description: Text
    """Description."""
    details: Text
    """Details."""
    recommended_use: Text
    """What to use it for."""
    parameters: Text
    """Size."""
    supported_languages: Text
    """Languages."""
    image: Text
    """Picture."""
    repo: Text
    """Where its weights are."""
    type: ModelType
    """What it is for."""
    endpoint: EndpointPath
    """Its first path."""
    endpoints: list[EndpointPath]
    """All its paths."""
    usage_metric: UsageMetric
    """What it is paid by."""
    pricing: Pricing
    """Prices."""
    context_window_tokens: Whole | None = None
    """Tokens that fit."""
    created_at: Whole
    """When it was added, in Unix seconds."""
    paid: Flag
    """Whether it costs."""
    multimodal: Flag
    """Whether it takes more than text."""
    tool_calling: Flag
    """Whether it calls tools."""
    chat: Flag | None = None
    """Whether it chats; unset means if its type is chat."""
    experimental: Flag | None = None
    """Whether it may go without notice."""
    deprecated: Flag | None = None
    """Whether it goes."""
    deprecation_date: Annotated[str, AfterValidator(a_date)] | None = None
    """When it goes."""
    safety: Safety | None = None
    """How safe it is."""
    chat_config: ChatConfig | None = None
    """What a chat needs to know."""

    @model_validator(mode="after")
    def agree(self) -> "ModelRecord":
        """Refuse fields that contradict each other.

        Raises
        ------
        PydanticCustomError
            When they do.
        """
        if self.endpoint not in self.endpoints:
            raise PydanticCustomError("endpoint", "endpoint must be one of endpoints")
        reasoning = self.chat_config.reasoning_config if self.chat_config else None
        if reasoning is None:
            return self
        for path, params in (reasoning.params or {}).items():
            used = any(EFFORT_TOKEN in text for text in texts(params.model_dump(mode="json")))
            if used and not reasoning.effort_map:
                raise PydanticCustomError(
                    "effort", "params of {path} use $EFFORT, so effortMap is needed", {"path": path}
                )
        return self

    @property
    def chats(self) -> bool:
        """Whether it is a model for chats."""
        return self.type is ModelType.CHAT if self.chat is None else self.chat


class CertificateResponse(ResponseBody):
    """A signed certificate."""

    certificate: str
    """Chain in PEM."""
    not_after: Timestamp
    """When it expires."""


class QueuedCertificateResponse(ResponseBody):
    """The order of a certificate waits."""

    status: Literal["queued"]
    """Always `queued`."""
    message: str
    """What it waits for."""
    retry_after: int
    """Seconds until the next try, also in Retry-After."""


class ReleaseEventResponse(ResponseBody):
    """What a release event did."""

    deployments: Count
    """Deployments whose source is checked now."""


class PaymentEventResponse(ResponseBody):
    """What an event of the payment processor did."""

    organizations: Count
    """Organizations whose subscriptions were checked."""


class HealthResponse(ResponseBody):
    """The process lives."""

    status: Literal["ok"]
    """Always `ok`."""


class ReadinessResponse(ResponseBody):
    """What the process waits for."""

    status: Literal["waiting", "ending"]
    """Why it takes no requests."""
    for_: Omittable[list[str]] = Field(default=None, alias="for")
    """What it waits for."""
