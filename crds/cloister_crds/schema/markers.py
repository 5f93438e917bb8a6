"""What a model says beyond its types: rules, list types, columns, descriptions from docstrings."""

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

__all__ = [
    "VALIDATIONS",
    "Cel",
    "Column",
    "ListType",
    "MapType",
    "describe_fields",
    "immutable",
    "immutable_optional",
    "matches",
]


def describe_fields(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Describe each field in a model's JSON Schema by its docstring, unless it is described.

    Parameters
    ----------
    schema
        Schema of the model with its ``properties``; it is changed.

    Raises
    ------
    OSError
        When the source of the model is not installed.
    """
    for name, field in model.model_fields.items():
        text = field.description or _docstring(model, name)
        if text:
            schema["properties"][field.alias or name]["description"] = text


def _docstring(model: type[BaseModel], field: str) -> str:
    """Return the docstring of a field where it was declared last; empty if it has none."""
    for each in model.__mro__[: model.__mro__.index(BaseModel)]:
        found = _fields_of(each.__module__).get(each.__qualname__, {}).get(field)
        if found is not None:
            return found
    return ""


@cache
def _fields_of(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of all annotated attributes of a module's classes, by their names."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {name: dict(_attributes(node)) for name, node in _classes(tree, "")}


def _classes(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield the qualified name and the definition of every class."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ClassDef():
                yield prefix + child.name, child
                yield from _classes(child, f"{prefix}{child.name}.")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _classes(child, f"{prefix}{child.name}.<locals>.")
            case _:
                yield from _classes(child, prefix)


def _attributes(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield name and docstring of each annotated attribute of a class; empty if it has none."""
    for statement, following in pairwise([*node.body, ast.Pass()]):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        match following:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield statement.target.id, inspect.cleandoc(text)
            case _:
                yield statement.target.id, ""


VALIDATIONS = "x-kubernetes-validations"
"""Key under which a structural schema carries CEL rules."""


@dataclass(frozen=True, slots=True)
class Cel:
    """A rule of ``x-kubernetes-validations`` (Kubernetes, "Validation rules")."""

    rule: str
    """CEL over ``self`` and, for rules about a change, ``oldSelf``."""
    message: str
    """Sentence for the user: what is wrong and what to do."""
    field_path: str | None = None
    """Path of the field to blame, such as ``.customDomain``; None means where the rule is."""
    reason: Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"] | None = None
    """Machine-readable reason; None means FieldValueInvalid."""
    optional_old_self: bool = False
    """Whether the rule is also checked at creation, with ``oldSelf`` an optional value."""
    check: Callable[[Any], bool] | None = None
    """The same rule over the pydantic value; None only for rules about a change."""

    def error(self) -> PydanticCustomError:
        """Return what pydantic raises when the check fails."""
        return PydanticCustomError("rule", "{sentence}", {"sentence": self.message})

    def validation(self) -> dict[str, Any]:
        """Return the rule as it is in the CustomResourceDefinition."""
        entry: dict[str, Any] = {"rule": self.rule, "message": self.message}
        if self.field_path is not None:
            entry["fieldPath"] = self.field_path
        if self.reason is not None:
            entry["reason"] = self.reason
        if self.optional_old_self:
            entry["optionalOldSelf"] = True
        return entry

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Run the check after the type's own validation."""
        inner = handler(source)
        check = self.check
        if check is None:
            return inner

        def validate(value: Any) -> Any:
            if not check(value):
                raise self.error()
            return value

        return core_schema.no_info_after_validator_function(validate, inner)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Put the rule where the generator finds it."""
        result = handler(schema)
        result[VALIDATIONS] = [*result.get(VALIDATIONS, ()), self.validation()]
        return result


@dataclass(frozen=True, slots=True)
class ListType:
    """How server-side apply and validation see a list (``x-kubernetes-list-type``)."""

    kind: Literal["set", "map", "atomic"]
    """``set``: no value twice; ``map``: no two items with the same keys; ``atomic``: one value."""
    keys: tuple[str, ...] = ()
    """Wire names of the key fields of a ``map``."""

    def identity(self, item: Any) -> Any:
        """Return what must be unique in the list."""
        if self.kind == "map":
            return tuple(getattr(item, key) for key in self.keys)
        return item

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Refuse duplicates, as the API server does."""
        inner = handler(source)
        if self.kind == "atomic":
            return inner

        def validate(value: Any) -> Any:
            seen = set()
            for item in value:
                identity = self.identity(item)
                if identity in seen:
                    raise PydanticCustomError(
                        "duplicate",
                        "{value} is listed twice; remove one of the two",
                        {"value": str(identity[0] if self.kind == "map" else identity)},
                    )
                seen.add(identity)
            return value

        return core_schema.no_info_after_validator_function(validate, inner)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Put the list type where the generator finds it."""
        result = handler(schema)
        result["x-kubernetes-list-type"] = self.kind
        if self.keys:
            result["x-kubernetes-list-map-keys"] = list(self.keys)
        return result


@dataclass(frozen=True, slots=True)
class MapType:
    """Who can own the fields of an object (``x-kubernetes-map-type``).

    The server records the owners of fields at each write. An atomic object has one owner as a
    whole, lists in it included, whatever their own types: for what one program writes.
    """

    kind: Literal["granular", "atomic"]
    """``granular``: each field has owners of its own; ``atomic``: all have the same."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Put the map type where the generator finds it."""
        return {**handler(schema), "x-kubernetes-map-type": self.kind}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get`` (``additionalPrinterColumns``)."""

    name: str
    """Heading."""
    path: str
    """JSON path from the object, such as ``.status.phase``."""
    type: Literal["string", "integer", "boolean", "date"] = "string"
    """How kubectl prints it."""
    description: str = ""
    """Text of ``kubectl explain``-like tools."""
    wide: bool = False
    """Whether only ``-o wide`` shows it."""


def matches(pattern: str, message: str) -> Cel:
    """Describe the form of a string, with a message of our own where the server's is a regex.

    Parameters
    ----------
    pattern
        Anchored expression in the common subset of RE2 and Python's ``re``: character classes
        written out, no look-around.
    message
        Sentence for the user, the field's wire name first.

    Raises
    ------
    ValueError
        When the pattern is not anchored at both ends or holds a quote, which would end the CEL
        literal.
    """
    if not (pattern.startswith("^") and pattern.endswith("$")) or "'" in pattern:
        raise ValueError(f"pattern {pattern!r} must begin with ^, end with $ and hold no quote")
    compiled = re.compile(pattern, re.ASCII)
    return Cel(
        rule=f"self.matches(r'{pattern}')",
        message=message,
        check=lambda value: compiled.fullmatch(value) is not None,
    )


def immutable(what: str, remedy: str) -> Cel:
    """Forbid changes of a field.

    The server evaluates it at each write of the status too. For kinds whose status is written
    often, and that only the operator writes, the policy cloister-immutable forbids them.

    Parameters
    ----------
    remedy
        What to do instead, as an imperative sentence without full stop.
    """
    return Cel(rule="self == oldSelf", message=f"{what} cannot be changed; {remedy}")


def immutable_optional(what: str, remedy: str) -> Cel:
    """Forbid that an optional field is changed, added or removed.

    Stands among the rules of the object that has the field: a rule at the field itself is not
    checked when the field is added or removed.

    Parameters
    ----------
    remedy
        What to do instead, as an imperative sentence without full stop.
    """
    return Cel(
        rule=f"has(self.{what}) == has(oldSelf.{what}) && "
        f"(!has(self.{what}) || self.{what} == oldSelf.{what})",
        message=f"{what} cannot be changed, added or removed; {remedy}",
    )
