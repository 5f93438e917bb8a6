"""What the bodies of responses share.

Services and `cloister_api.records` build these types, routes return them, and the OpenAPI document
is generated from them. The order of fields is their order on the wire.
"""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import override

from cloister_crds.schema.descriptions import describe_fields

__all__ = [
    "ContainerUser",
    "Count",
    "Omittable",
    "ResponseBody",
    "Timestamp",
    "Uuid",
    "is_none",
]

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
