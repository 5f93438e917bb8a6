"""From a pydantic model to a structural schema (Kubernetes, "Specifying a structural schema").

pydantic writes JSON Schema 2020-12; CustomResourceDefinitions take a subset of OpenAPI 3.0. Each
construct either has a form that the API server takes and that means the same, or is refused with
an error that names model and field. Called by `cloister_crds.crd_manifests`; it knows no kind.
"""

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import override

from cloister_crds.schema.markers import VALIDATIONS

__all__ = ["SchemaError", "structural_schema"]

INT_OR_STRING = "x-kubernetes-int-or-string"
KEPT = (
    "type",
    "format",
    "description",
    "default",
    "enum",
    "nullable",
    "minimum",
    "maximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    INT_OR_STRING,
)
"""Keys that mean the same on both sides."""
DROPPED = ("title", "examples", "deprecated", "$defs")
"""Keys that say nothing to the API server."""
FORMATS = ("date-time", "date", "byte", "int32", "int64", "float", "double")
"""Formats that the API server checks; it ignores all others without a word."""
NO_NUMBER_TWICE = {
    "rule": "self.all(one, self.exists_one(other, one == other))",
    "message": "a number is listed twice; remove one of the two",
}
"""Asked of sets of numbers: the server takes 2 and 2.0 for two values, and stores 2 twice."""
REFUSED = {
    "prefixItems": "a tuple of fixed positions has no structural form; use a model with fields",
    "oneOf": "a union of models has no structural form; use one model of optional fields and a "
    "rule that exactly one is set",
    "discriminator": "a discriminated union has no structural form; use one model of optional "
    "fields, an enum that says which, and a rule that exactly that one is set",
    "not": "`not` has no structural form; use a rule",
    "if": "conditions have no structural form; use a rule",
    "patternProperties": "keys with a pattern have no structural form; use a list of named items",
    "propertyNames": "keys with a pattern have no structural form; use a list of named items",
}
"""Keys that have no structural form, and what to write instead."""


class SchemaError(Exception):
    """A model holds what a structural schema cannot say."""

    def __init__(self, model: str, field: str, problem: str) -> None:
        super().__init__(f"{model}.{field}: {problem}" if field else f"{model}: {problem}")
        self.model = model
        """Name of the model."""
        self.field = field
        """Wire name of the field, with the path inside it; empty for the model itself."""


class _Defaults(GenerateJsonSchema):
    """pydantic's generator, which also writes down what a default factory makes."""

    @override
    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        result = super().default_schema(schema)
        factory = schema.get("default_factory")
        if factory is None:
            return result
        value = factory()  # type: ignore[call-arg]  # factories that take the data are refused by the call itself
        if isinstance(value, BaseModel):
            value = value.model_dump(
                mode="json", by_alias=True, exclude_defaults=True, exclude_none=True
            )
        return {**result, "default": value}


def structural_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Write a model as a structural schema: references inlined, defaults and rules in place.

    Parameters
    ----------
    model
        Model whose fields become ``properties``.

    Returns
    -------
    dict
        Schema in a fixed order of keys.

    Raises
    ------
    SchemaError
        When a field has no structural form, or is not bounded.
    """
    document = model.model_json_schema(by_alias=True, mode="validation", schema_generator=_Defaults)
    return _Rewriter(document.get("$defs", {}), model.__name__).rewrite(document, "")


class _Rewriter:
    """Walks one JSON Schema document; knows where it is, for the sake of its errors."""

    def __init__(self, definitions: dict[str, Any], model: str) -> None:
        self._definitions = definitions
        self._models: list[str] = [model]
        self._open: list[str] = []

    def rewrite(self, schema: dict[str, Any], field: str) -> dict[str, Any]:
        """Return the structural form of one node."""
        reference = schema.get("$ref")
        if reference is not None:
            return self._inline(str(reference).rsplit("/", 1)[-1], schema, field)
        schema = self._flatten(schema, field)
        if "$ref" in schema:
            return self.rewrite(schema, field)
        for key, remedy in REFUSED.items():
            if key in schema:
                raise self._error(field, remedy)
        result = {key: schema[key] for key in KEPT if key in schema}
        if "description" in result:
            result["description"] = " ".join(result["description"].replace("``", "`").split())
        self._constants(schema, result)
        self._numbers(schema, result, field)
        self._strings(schema, result, field)
        self._lists(schema, result, field)
        self._objects(schema, result, field)
        self._anything(result, field)
        if VALIDATIONS in schema:
            result[VALIDATIONS] = [*result.get(VALIDATIONS, ()), *schema[VALIDATIONS]]
        self._complain_of_the_rest(schema, field)
        if result.get("default", "") in ("", None, [], ()):
            # Unset means the same, and an object stays as small as its author wrote it.
            result.pop("default", None)
        return result

    def _error(self, field: str, problem: str) -> SchemaError:
        return SchemaError(self._models[-1], field, problem)

    def _inline(self, name: str, schema: dict[str, Any], field: str) -> dict[str, Any]:
        """Put a definition where it is referred to; what stands next to the reference wins."""
        if name in self._open:
            raise self._error(field, f"{name} holds itself; structural schemas have no recursion")
        target = dict(self._definitions[name])
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        rules = [*target.get(VALIDATIONS, ()), *siblings.pop(VALIDATIONS, ())]
        if rules:
            target[VALIDATIONS] = rules
        target.update(siblings)
        self._open.append(name)
        if "properties" in target:
            self._models.append(str(target.get("title", name)))
        try:
            return self.rewrite(target, "" if "properties" in target else field)
        finally:
            self._open.pop()
            if "properties" in target:
                self._models.pop()

    def _flatten(self, schema: dict[str, Any], field: str) -> dict[str, Any]:
        """Unwrap optional types: ``T | None`` is T that need not be there."""
        if len(schema.get("allOf", ())) == 1:
            schema = {**schema["allOf"][0], **{k: v for k, v in schema.items() if k != "allOf"}}
        if "anyOf" not in schema:
            return schema
        branches = [branch for branch in schema["anyOf"] if branch.get("type") != "null"]
        siblings = {key: value for key, value in schema.items() if key != "anyOf"}
        if len(branches) == 1:
            rules = [*branches[0].get(VALIDATIONS, ()), *siblings.pop(VALIDATIONS, ())]
            return {**branches[0], **siblings, **({VALIDATIONS: rules} if rules else {})}
        if sorted(str(branch.get("type")) for branch in branches) == ["integer", "string"]:
            return {**siblings, INT_OR_STRING: True}
        raise self._error(field, "a union of types has no structural form; choose one type")

    @staticmethod
    def _constants(schema: dict[str, Any], result: dict[str, Any]) -> None:
        if "const" in schema:
            result["enum"] = [schema["const"]]

    def _numbers(self, schema: dict[str, Any], result: dict[str, Any], field: str) -> None:
        """Bound integers, and write exclusive bounds as OpenAPI 3.0 does."""
        kind = schema.get("type")
        for exclusive, inclusive, step in (
            ("exclusiveMinimum", "minimum", 1),
            ("exclusiveMaximum", "maximum", -1),
        ):
            if exclusive not in schema:
                continue
            if kind == "integer":
                result[inclusive] = schema[exclusive] + step
            else:
                result[inclusive] = schema[exclusive]
                result[exclusive] = True
        if kind == "integer" and "enum" not in result:
            if "minimum" not in result or "maximum" not in result:
                raise self._error(field, "an integer needs both bounds (ge and le)")
            result.setdefault("format", "int64")

    def _strings(self, schema: dict[str, Any], result: dict[str, Any], field: str) -> None:
        if schema.get("type") != "string":
            return
        form = schema.get("format")
        if form is not None and form not in FORMATS:
            raise self._error(field, f"the API server does not check format {form}; use a rule")
        if "enum" not in result and "maxLength" not in schema:
            raise self._error(field, "a string needs max_length, or CEL cannot bound its cost")

    def _lists(self, schema: dict[str, Any], result: dict[str, Any], field: str) -> None:
        if schema.get("type") != "array":
            return
        if "maxItems" not in schema:
            raise self._error(field, "a list needs max_length, or CEL cannot bound its cost")
        if schema.get("uniqueItems"):
            result.setdefault("x-kubernetes-list-type", "set")
        result.setdefault("x-kubernetes-list-type", "atomic")
        items = result["items"] = self.rewrite(schema["items"], f"{field}[]")
        if result["x-kubernetes-list-type"] == "set" and items.get("type") == "integer":
            result[VALIDATIONS] = [NO_NUMBER_TWICE]

    def _objects(self, schema: dict[str, Any], result: dict[str, Any], field: str) -> None:
        if schema.get("type") != "object":
            return
        if "properties" in schema:
            result["properties"] = {
                name: self.rewrite(value, name) for name, value in schema["properties"].items()
            }
            if schema.get("required"):
                result["required"] = list(schema["required"])
            # additionalProperties: false never stands next to properties in a structural schema;
            # the server prunes unknown fields, and refuses them where the client asks it to.
            return
        values = schema.get("additionalProperties")
        if isinstance(values, dict):
            if "maxProperties" not in schema:
                raise self._error(field, "a map needs max_length, or CEL cannot bound its cost")
            result["additionalProperties"] = self.rewrite(values, f"{field}.*")
        elif "properties" not in schema:
            result["x-kubernetes-preserve-unknown-fields"] = True

    def _anything(self, result: dict[str, Any], field: str) -> None:
        if "type" in result or INT_OR_STRING in result:
            return
        if "enum" in result:
            raise self._error(field, "an enum of mixed types has no structural form")
        result["x-kubernetes-preserve-unknown-fields"] = True

    def _complain_of_the_rest(self, schema: dict[str, Any], field: str) -> None:
        """Refuse what nobody has thought about, instead of dropping it."""
        known = {
            *KEPT,
            *DROPPED,
            VALIDATIONS,
            "const",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "uniqueItems",
            "items",
            "properties",
            "required",
            "additionalProperties",
        }
        for key in schema:
            if key not in known:
                raise self._error(field, f"{key} is not known to the generator")
