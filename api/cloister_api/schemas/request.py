"""The base of request bodies."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import override

from cloister_crds.schema.descriptions import describe_fields

__all__ = ["EmptyRequest", "RequestBody", "whole"]

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
