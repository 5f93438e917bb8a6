"""Valid and invalid values for the fields of a kind, made from its CRD's schema.

In the manner of Acto: each field of a spec goes through valid values and invalid ones and back. The
fields are those of the schema, including those of list items. A field for which no valid
values can be generated needs an entry in the test that walks, so that no new field is left out.
"""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

__all__ = ["Field", "InvalidValue", "fields", "immutable", "spec_schema"]

_MANIFESTS = Path(__file__).parents[3] / "crds" / "manifests" / "crds"
_ITEM = "[]"
_NONSENSE = "~ ^ ?"
"""A text that no pattern of the CRDs allows."""

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class InvalidValue:
    """A value that the schema does not allow."""

    value: Any
    """The value."""
    place: str
    """Text that the refusal must contain."""


@dataclass(frozen=True)
class Field:
    """A field of a spec."""

    path: tuple[str, ...]
    """Path in the object; ``[]`` = the first entry of a list."""
    valid: tuple[Any, Any]
    """Two values that the schema allows, one after the other."""
    invalid: tuple[InvalidValue, ...]
    """Values that it does not allow."""
    immutable: bool
    """Whether it is immutable after creation."""
    default: Any
    """Default of the schema; None = it has none."""

    @property
    def text(self) -> str:
        """Its path as text."""
        return _text(self.path)

    def set(self, spec: Mapping[str, Any], value: Any) -> dict[str, Any]:
        """Return the top-level field of a spec that has the value: the patch that sets it."""
        changed = copy.deepcopy(dict(spec))
        at: Any = changed
        for name in self.path[:-1]:
            at = at[0] if name == _ITEM else at.setdefault(name, {})
        at[self.path[-1]] = value
        return {self.path[0]: changed[self.path[0]]}


@cache
def spec_schema(plural: str) -> Schema:
    """Read the schema of a kind's spec."""
    document = yaml.safe_load((_MANIFESTS / f"{plural}.yaml").read_text())
    schema: Schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: Schema = schema["properties"]["spec"]
    return found


def fields(plural: str, known: Mapping[str, tuple[Any, Any]]) -> list[Field]:
    """Yield the fields of a kind's spec, including nested ones.

    Parameters
    ----------
    known
        Valid values of fields that none can be generated for, by path.

    Raises
    ------
    LookupError
        When a field has no valid values, or a name in ``known`` is not a field.
    """
    schema = spec_schema(plural)
    found = list(_fields((), schema, known, immutable(schema)))
    if unknown := known.keys() - {each.text for each in found}:
        raise LookupError(f"no fields of {plural}: {sorted(unknown)}")
    return found


def immutable(schema: Schema) -> set[str]:
    """Return the immutable fields of a spec: those whose rules use ``oldSelf``."""
    inner = {
        name
        for name, part in schema["properties"].items()
        for rule in part.get("x-kubernetes-validations", ())
        if "oldSelf" in rule["rule"]
    }
    rules = [rule["rule"] for rule in schema.get("x-kubernetes-validations", ())]
    return inner | {name for rule in rules for name in re.findall(r"oldSelf\.(\w+)", rule)}


def _text(path: Sequence[str]) -> str:
    return ".".join(path).replace(f".{_ITEM}", _ITEM)


def _fields(
    path: tuple[str, ...], schema: Schema, known: Mapping[str, tuple[Any, Any]], fixed: set[str]
) -> Iterator[Field]:
    """Recurse; an object is walked by its fields, a list as a whole and by those of its entries."""
    entries = schema.get("items", {})
    if path and not (schema["type"] == "object" and "properties" in schema):
        valid = known.get(_text(path)) or _valid(_text(path), schema)
        place = "spec." + _text(path).replace(_ITEM, "[0]")
        invalid = tuple(_invalid(place, schema))
        yield Field(path, valid, invalid, path[0] in fixed, schema.get("default"))
    for name, part in schema.get("properties", {}).items():
        yield from _fields((*path, name), part, known, fixed)
    for name, part in entries.get("properties", {}).items():
        yield from _fields((*path, _ITEM, name), part, known, fixed)


def _valid(text: str, schema: Schema) -> tuple[Any, Any]:
    """Generate two values; the last is the default where there is one."""
    kind = schema["type"]
    if "enum" in schema and len(schema["enum"]) > 1:
        default = schema.get("default", schema["enum"][0])
        return next(each for each in schema["enum"] if each != default), default
    if kind == "boolean":
        default = schema.get("default", False)
        return not default, default
    if kind == "integer":
        least = schema.get("minimum", 0)
        return least + 1, least
    if kind == "string" and not schema.keys() & {"x-kubernetes-validations", "pattern", "format"}:
        length = max(1, schema.get("minLength", 1))
        return "x" * length, "y" * length
    raise LookupError(f"name two valid values of {text}")


def _invalid(place: str, schema: Schema) -> Iterator[InvalidValue]:
    """Yield values that violate the schema."""
    match schema["type"]:
        case "boolean":
            yield InvalidValue("perhaps", place)
        case "integer":
            yield InvalidValue("many", place)
            yield InvalidValue(schema["minimum"] - 1, place)
            yield InvalidValue(schema["maximum"] + 1, place)
        case "string":
            yield from _wrong_texts(place, schema)
        case "array":
            yield InvalidValue("none", place)
            yield InvalidValue([[1]], f"{place}[0]")
            yield from _wrong_lists(place, schema)
        case _:
            yield InvalidValue("text", place)


def _wrong_texts(place: str, schema: Schema) -> Iterator[InvalidValue]:
    yield InvalidValue(7, place)
    if "enum" in schema:
        yield InvalidValue("Elsewhere", place)
    if schema.get("minLength"):
        yield InvalidValue("", place)
    if "maxLength" in schema:
        yield InvalidValue("x" * (schema["maxLength"] + 1), place)
    if schema.get("x-kubernetes-validations"):
        yield InvalidValue(_NONSENSE, place)


def _wrong_lists(place: str, schema: Schema) -> Iterator[InvalidValue]:
    """Yield lists that are too long, have duplicates, or have an invalid entry."""
    keys = schema.get("x-kubernetes-list-map-keys", ())

    def entry(text: str) -> Any:
        return dict.fromkeys(keys, text) if keys else text

    if "maxItems" in schema:
        yield InvalidValue([entry(f"a{number}") for number in range(schema["maxItems"] + 1)], place)
    if schema.get("x-kubernetes-list-type") in {"set", "map"}:
        yield InvalidValue([entry("a"), entry("a")], f"{place}[1]")
    if schema["items"].get("x-kubernetes-validations"):
        yield InvalidValue([entry(_NONSENSE)], f"{place}[0]")
