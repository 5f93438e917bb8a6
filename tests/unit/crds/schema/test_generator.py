"""Every construct that pydantic writes: its structural form, or a refusal that names the place."""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import AnyUrl, BaseModel, ConfigDict, Field

from cloister_crds.schema.generator import SchemaError, structural_schema
from cloister_crds.schema.markers import Cel, ListType, MapType, immutable, matches

Short = Annotated[str, Field(max_length=10)]


def field_of(annotation: Any, default: Any = ...) -> dict[str, Any]:
    """Return the structural form of one field."""
    model = type(
        "Thing",
        (BaseModel,),
        {"__annotations__": {"part": annotation}, "part": default}
        if default is not ...
        else {"__annotations__": {"part": annotation}},
    )
    properties = structural_schema(model)["properties"]
    form: dict[str, Any] = properties["part"]
    return form


class Colour(StrEnum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


class Inner(BaseModel):
    """Something inside."""

    word: Short = "x"
    many: Annotated[tuple[Short, ...], Field(max_length=3)] = ("a",)


class Recursive(BaseModel):
    """Something that holds itself."""

    below: Optional["Recursive"] = None


class Cat(BaseModel):
    """A cat."""

    kind: Literal["cat"]


class Dog(BaseModel):
    """A dog."""

    kind: Literal["dog"]


WHOLE = {"type": "integer", "format": "int64"}
FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "an optional type is the type itself": (
        Short | None,
        {"type": "string", "maxLength": 10},
    ),
    "exclusive bounds of whole numbers move by one": (
        Annotated[int, Field(gt=0, lt=10)],
        {**WHOLE, "minimum": 1, "maximum": 9},
    ),
    "exclusive bounds of fractions are flags": (
        Annotated[float, Field(gt=0, lt=10)],
        {
            "type": "number",
            "minimum": 0,
            "exclusiveMinimum": True,
            "maximum": 10,
            "exclusiveMaximum": True,
        },
    ),
    "a constant is an enum of one": (
        Literal["a"],
        {"type": "string", "enum": ["a"]},
    ),
    "an enum is inlined with its own text": (
        Colour,
        {"type": "string", "description": "A colour.", "enum": ["red", "blue"]},
    ),
    "a number or a word": (
        int | str,
        {"x-kubernetes-int-or-string": True},
    ),
    "anything at all": (
        Any,
        {"x-kubernetes-preserve-unknown-fields": True},
    ),
    "a set is a list of type set": (
        Annotated[frozenset[Short], Field(max_length=3)],
        {
            "type": "array",
            "maxItems": 3,
            "x-kubernetes-list-type": "set",
            "items": {"type": "string", "maxLength": 10},
        },
    ),
    "a list is atomic unless it says otherwise": (
        Annotated[list[Short], Field(max_length=3)],
        {
            "type": "array",
            "maxItems": 3,
            "x-kubernetes-list-type": "atomic",
            "items": {"type": "string", "maxLength": 10},
        },
    ),
    "an object may have one owner as a whole": (
        Annotated[Inner, MapType("atomic")],
        {
            "type": "object",
            "description": "Something inside.",
            "x-kubernetes-map-type": "atomic",
            "properties": {
                "word": {"type": "string", "default": "x", "maxLength": 10},
                "many": {
                    "type": "array",
                    "default": ["a"],
                    "maxItems": 3,
                    "x-kubernetes-list-type": "atomic",
                    "items": {"type": "string", "maxLength": 10},
                },
            },
        },
    ),
    "a list of type map names its keys": (
        Annotated[list[Inner], Field(max_length=3), ListType("map", keys=("word",))],
        {
            "type": "array",
            "maxItems": 3,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["word"],
            "items": {
                "type": "object",
                "description": "Something inside.",
                "properties": {
                    "word": {"type": "string", "default": "x", "maxLength": 10},
                    "many": {
                        "type": "array",
                        "default": ["a"],
                        "maxItems": 3,
                        "x-kubernetes-list-type": "atomic",
                        "items": {"type": "string", "maxLength": 10},
                    },
                },
            },
        },
    ),
    "a map has values of one form": (
        Annotated[dict[str, Short], Field(max_length=3)],
        {
            "type": "object",
            "maxProperties": 3,
            "additionalProperties": {"type": "string", "maxLength": 10},
        },
    ),
    "a time has the server's format": (
        Annotated[datetime, Field(json_schema_extra={"maxLength": 32})],
        {"type": "string", "format": "date-time", "maxLength": 32},
    ),
    "text loses its line breaks": (
        Annotated[Short, Field(description="One ``word``\n    of many.")],
        {"type": "string", "description": "One `word` of many.", "maxLength": 10},
    ),
}


@pytest.mark.parametrize("what", FORMS)
def test_each_construct_has_its_form(what: str) -> None:
    annotation, form = FORMS[what]
    assert field_of(annotation) == form


REFUSED: dict[str, tuple[Any, str]] = {
    "a tuple of fixed positions": (tuple[Short, Short], "fixed positions"),
    "a union of types": (Short | bool, "choose one type"),
    "a union of models": (Cat | Dog, "choose one type"),
    "a discriminated union": (
        Annotated[Cat | Dog, Field(discriminator="kind")],
        "exactly one",
    ),
    "an address": (AnyUrl, "does not check format uri"),
    "a string without end": (str, "max_length"),
    "a list without end": (list[Short], "max_length"),
    "a map without end": (dict[str, Short], "max_length"),
    "a number without bounds": (int, "both bounds"),
    "a number with one bound": (Annotated[int, Field(ge=0)], "both bounds"),
    "an enum of mixed types": (Literal["a", 1], "mixed types"),
    "keys with a pattern": (
        dict[Annotated[str, Field(pattern="^a$")], Short],
        "keys with a pattern",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_form_is_refused_by_model_and_field(what: str) -> None:
    annotation, words = REFUSED[what]
    with pytest.raises(SchemaError, match=words) as caught:
        field_of(annotation)
    assert caught.value.model == "Thing"
    assert caught.value.field == "part"
    assert str(caught.value).startswith("Thing.part: ")


def test_a_place_inside_a_list_is_named() -> None:
    with pytest.raises(SchemaError, match=r"^Thing\.part\[\]: "):
        field_of(Annotated[list[str], Field(max_length=3)])


def test_a_model_inside_a_model_is_named_by_itself() -> None:
    class Outer(BaseModel):
        """Outside."""

        inner: "Unbounded"

    class Unbounded(BaseModel):
        """Inside."""

        word: str

    Outer.model_rebuild(_types_namespace={"Unbounded": Unbounded})
    with pytest.raises(SchemaError, match=r"^Unbounded\.word: "):
        structural_schema(Outer)


def test_recursion_is_refused() -> None:
    with pytest.raises(SchemaError, match="no recursion"):
        structural_schema(Recursive)


def test_unknown_keys_are_refused_instead_of_dropped() -> None:
    with pytest.raises(SchemaError, match="contentEncoding is not known"):
        field_of(Annotated[Short, Field(json_schema_extra={"contentEncoding": "base64"})])


@pytest.mark.parametrize(
    ("annotation", "default", "written"),
    [
        (Short, "a", "a"),
        (Short, "", None),
        (Short | None, None, None),
        (bool, False, False),
        (Annotated[int, Field(ge=0, le=9)], 0, 0),
        (Annotated[tuple[Short, ...], Field(max_length=3)], (), None),
        (Annotated[tuple[Short, ...], Field(max_length=3)], ("a",), ["a"]),
        (Colour, Colour.RED, "red"),
    ],
)
def test_defaults_are_written_where_they_differ_from_unset(
    annotation: Any, default: Any, written: Any
) -> None:
    form = field_of(annotation, default)
    assert form.get("default") == written
    assert ("default" in form) is (written is not None)


@pytest.mark.parametrize(
    ("factory", "written"),
    [(Inner, {}), (lambda: Inner(word="y"), {"word": "y"})],
    ids=["its own defaults", "others"],
)
def test_a_parent_gets_a_default_so_that_those_inside_apply(
    factory: Callable[[], Inner], written: dict[str, Any]
) -> None:
    form = field_of(Inner, Field(default_factory=factory))
    assert form["default"] == written
    assert form["properties"]["word"]["default"] == "x"


def test_rules_of_field_type_and_model_stand_where_they_belong() -> None:
    class Ruled(BaseModel):
        """Has rules."""

        name: Annotated[Short, matches("^a$", "name is a"), immutable("name", "make another")]

    form = structural_schema(Ruled)["properties"]["name"]
    assert form["x-kubernetes-validations"] == [
        {"rule": "self.matches(r'^a$')", "message": "name is a"},
        {"rule": "self == oldSelf", "message": "name cannot be changed; make another"},
    ]


def test_a_rule_of_an_optional_type_is_kept() -> None:
    form = field_of(Annotated[Short, matches("^a$", "part is a")] | None)
    assert form["x-kubernetes-validations"][0]["message"] == "part is a"


def test_sets_of_numbers_refuse_duplicates_that_the_server_overlooks() -> None:
    number = Annotated[int, Field(ge=0, le=9)]
    form = field_of(Annotated[tuple[number, ...], Field(max_length=3), ListType("set")])
    (rule,) = form["x-kubernetes-validations"]
    assert "exists_one" in rule["rule"]


def test_required_fields_are_listed_and_forbidden_ones_are_the_servers_business() -> None:
    class Strict(BaseModel):
        """Takes nothing else."""

        model_config = ConfigDict(extra="forbid")

        first: Short
        second: Short = "a"

    form = structural_schema(Strict)
    assert form["required"] == ["first"]
    assert "additionalProperties" not in form


def test_a_rule_can_blame_a_field_and_give_a_reason() -> None:
    rule = Cel("true", "no", field_path=".a", reason="FieldValueForbidden", optional_old_self=True)
    assert rule.validation() == {
        "rule": "true",
        "message": "no",
        "fieldPath": ".a",
        "reason": "FieldValueForbidden",
        "optionalOldSelf": True,
    }
