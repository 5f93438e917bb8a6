"""Descriptions of fields from the docstrings below them, where a schema is generated."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from cloister_crds.kinds.meta import Model


class Outer(Model):
    """A model with another in it."""

    class Inner(Model):
        """A model inside."""

        the_word: str
        """theWord is said
        over two lines."""
        silent: int = 0

    first: Inner
    """first is a model."""
    second: str = Field(description="by itself")
    """second has words of its own."""
    "third is not a docstring: it follows one."
    fourth: int


class Later(Outer):
    """A model that inherits fields and declares one again."""

    first: Outer.Inner
    fifth: int = Field(alias="other")
    """fifth has another name."""


def descriptions(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the descriptions of a schema's properties."""
    found = {name: each.get("description", "") for name, each in schema["properties"].items()}
    return {name: text for name, text in found.items() if text}


def test_fields_are_described_by_their_docstrings() -> None:
    schema = Outer.model_json_schema()
    assert descriptions(schema) == {"first": "first is a model.", "second": "by itself"}
    inner = schema["$defs"]["Inner"]
    assert descriptions(inner) == {"theWord": "theWord is said\nover two lines."}


def test_a_field_has_the_docstring_of_its_last_declaration() -> None:
    assert descriptions(Later.model_json_schema()) == {
        "second": "by itself",
        "other": "fifth has another name.",
    }


def test_a_model_in_a_function_is_described() -> None:
    class Local(Model):
        """A model in a function."""

        word: str
        """word is local."""

    assert descriptions(Local.model_json_schema()) == {"word": "word is local."}
