"""Descriptions of fields: the docstrings below them, read when a schema is generated.

pydantic's own option for it (``use_attribute_docstrings``) reads and parses the source of a model
when its class is made. The programs make some 200 and generate no schema at their start.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

__all__ = ["describe_fields"]


def describe_fields(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Describe each field in a model's JSON Schema by its docstring, unless it is described.

    Parameters
    ----------
    schema
        Schema of the model with its ``properties``; it is changed.
    model
        The model.

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
    """Return the docstring of a field where it was declared last; empty = it has none."""
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
    """Yield name and docstring of each annotated attribute of a class; empty = it has none."""
    for statement, following in pairwise([*node.body, ast.Pass()]):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        match following:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield statement.target.id, inspect.cleandoc(text)
            case _:
                yield statement.target.id, ""
