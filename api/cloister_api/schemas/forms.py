"""What all bodies share: bases of requests and responses, the form of errors.

Source of the form of errors: spec 3.1, 20.8.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import override

from cloister_crds.schema.markers import describe_fields

LEGACY = frozenset({"group_name", "group_order", "display_order"})
"""Fields that old clients send and nothing reads (spec 20.1)."""


class RequestBody(BaseModel):
    """Base of request bodies: unknown fields are refused, null means left out."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    IGNORED: ClassVar[frozenset[str]] = LEGACY
    """Fields that are accepted and ignored."""

    @classmethod
    @override
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the fields, that null means left out, and the names that are ignored."""
        described = handler.resolve_ref_schema(handler(schema))
        properties = described.setdefault("properties", {})
        describe_fields(described, cls)
        for name, field in cls.model_fields.items():
            if not field.is_required():
                sent = field.alias or name
                properties[sent] = optional(properties[sent])
        for name in sorted(cls.IGNORED):
            properties[name] = {"deprecated": True, "description": "Accepted and ignored."}
        return described

    @model_validator(mode="before")
    @classmethod
    def leave_out(cls, data: Any) -> Any:
        """Drop nulls and legacy names before the fields are validated."""
        if not isinstance(data, dict):
            return data
        return {
            key: value
            for key, value in data.items()
            if value is not None and key not in cls.IGNORED
        }


class EmptyRequest(RequestBody):
    """Body of a POST that takes none: empty, or an object without fields."""


def optional(form: dict[str, Any]) -> dict[str, Any]:
    """Describe a field that may be left out, and null, which is the same."""
    kept: dict[str, Any] = {key: form.pop(key) for key in ("title", "description") if key in form}
    default = form.pop("default", None)
    if default is not None:
        kept["default"] = default
    forms = form.get("anyOf", [form])
    if {"type": "null"} not in forms:
        forms = [*forms, {"type": "null"}]
    return {**kept, "anyOf": forms}


def whole(value: Any) -> Any:
    """Return the integer that a number without a fraction is in JSON Schema, such as 1 for 1.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


T = TypeVar("T")


def is_none(value: Any) -> bool:
    """Return whether a field is left out."""
    return value is None


Omittable = Annotated[T | None, Field(exclude_if=is_none)]
"""A field that is left out where it is None; a field that may be null is ``T | None`` instead."""
Count = Annotated[int, Field(ge=0)]
Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""A time as RFC 3339 in UTC."""
Uuid = Annotated[str, Field(json_schema_extra={"format": "uuid"})]


class ResponseBody(BaseModel):
    """A JSON object in a response."""

    model_config = ConfigDict(defer_build=True, validate_by_name=True)

    @classmethod
    @override
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the fields, and one that may be left out as one that is never null."""
        described = handler.resolve_ref_schema(handler(schema))
        describe_fields(described, cls)
        for name, field in cls.model_fields.items():
            if field.exclude_if is not None:
                sent = field.alias or name
                described["properties"][sent] = without_null(described["properties"][sent])
        return described


class ContainerUser(ResponseBody):
    """A container that uses something."""

    id: Uuid
    """Identifier."""
    name: str
    """Name; a production and a debug container may have the same."""
    debug: bool
    """Whether it is a debug container."""


def without_null(form: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value that may be null without that possibility."""
    kept = {key: value for key, value in form.items() if key not in {"default", "anyOf"}}
    forms = [each for each in form["anyOf"] if each != {"type": "null"}]
    return {**kept, **forms[0]} if len(forms) == 1 else {**kept, "anyOf": forms}


ErrorCode = Literal[
    "BAD_REQUEST",
    "UNAUTHORIZED",
    "PAYMENT_REQUIRED",
    "FORBIDDEN",
    "NOT_FOUND",
    "METHOD_NOT_ALLOWED",
    "REQUEST_TIMEOUT",
    "CONFLICT",
    "PRECONDITION_FAILED",
    "PAYLOAD_TOO_LARGE",
    "UNSUPPORTED_MEDIA_TYPE",
    "RATE_LIMITED",
    "HEADERS_TOO_LARGE",
    "INTERNAL_ERROR",
    "BAD_GATEWAY",
    "UNAVAILABLE",
]
"""Words for programs."""


@dataclass(frozen=True, slots=True)
class Detail:
    """One thing that is wrong with a request."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(use_attribute_docstrings=True)

    field: str
    """Field of the body or of the configuration file; empty for the whole."""
    code: str
    """CamelCase word for programs, such as `UnknownField` or `TagNotFound`."""
    message: str
    """Sentence for people: what is wrong and what to do."""


class ErrorResponse(ResponseBody):
    """Why something was not done."""

    error: str
    """Sentence for people."""
    code: ErrorCode
    """Word for programs."""
    request_id: str
    """Identifier of the request, also in the header X-Request-Id, the log and the audit trail."""
    used_by: Omittable[list[str]] = None
    """Names of the containers that keep something from being deleted, one for each."""
    used_by_containers: Omittable[list[ContainerUser]] = None
    """The same containers in the same order, with their identifiers."""
    details: Omittable[list[Detail]] = None
    """One entry for each problem: the first 50, then one that counts the rest."""
