"""The JSON Schema for editors."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from cloister_crds.config import json_schema
from cloister_crds.config.parsing import json_schema_text
from cloister_crds.config.syntax.document import Mapping, Node, Scalar, Sequence, read_document
from cloister_crds.config.syntax.scalars import ScalarKind, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[4]
PUBLISHED = ROOT / "crds/manifests/service-config.schema.json"
DATA = ROOT / "tests/data/config"

WRONG_BY_THEMSELVES = (
    "compose",
    "later-generation",
    "models",
    "names-and-images",
    "older-generation",
    "resources",
    "scalars",
    "shim",
)
"""Invalid files whose mistakes a schema can see."""


def value_of(node: Node) -> Any:
    """Provide what an editor of YAML 1.2 sees."""
    if isinstance(node, Mapping):
        return {key.text: value_of(value) for key, value in node.entries}
    if isinstance(node, Sequence):
        return [value_of(item) for item in node.items]
    typed: dict[ScalarKind, Callable[[str], Any]] = {
        ScalarKind.NULL: lambda _: None,
        ScalarKind.BOOL: lambda text: text == "true",
        ScalarKind.INTEGER: int,
        ScalarKind.FLOAT: float,
    }
    return typed.get(kind_of(node), str)(node.text)


def errors_of(path: Path) -> list[str]:
    """Judge a file by the schema."""
    root = read_document(path.read_bytes(), max_bytes=10**6).root
    assert root is not None
    assert not isinstance(root, Scalar)
    validator = jsonschema.Draft202012Validator(json_schema())
    return [
        f"{error.json_path}: {error.message}" for error in validator.iter_errors(value_of(root))
    ]


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


def test_the_published_schema_is_current() -> None:
    if os.environ.get("CLOISTER_UPDATE_TEST_DATA") == "1":
        PUBLISHED.write_text(json_schema_text(), "utf-8")
    assert PUBLISHED.read_text("utf-8") == json_schema_text()


@pytest.mark.parametrize("path", sorted(DATA.glob("valid/*.yml")), ids=lambda path: path.stem)
def test_valid_files_fit(path: Path) -> None:
    assert errors_of(path) == []


@pytest.mark.parametrize("name", WRONG_BY_THEMSELVES)
def test_mistakes_are_seen(name: str) -> None:
    assert errors_of(DATA / f"invalid/{name}.yml")


def test_every_key_is_described() -> None:
    schema = json_schema()
    for part in (schema, *schema["$defs"].values()):
        for key, described in part["properties"].items():
            assert described["description"].endswith((".", "remove it")), key
