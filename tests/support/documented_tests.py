"""Tests that manuals refer to, and a check that they exist."""

import ast
import re
from functools import cache
from pathlib import Path

__all__ = ["missing_tests", "named_tests", "rows_of"]

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`([A-Za-z0-9_/]+\.(?:py|go))::([Tt]est\w+)`")
GO_TEST = re.compile(r"^func (Test\w+)\(", re.MULTILINE)


def rows_of(manual: str, *headings: str) -> list[str]:
    """Return the rows of the tables of a manual.

    Parameters
    ----------
    headings
        First cells of rows that are headings of tables.
    """
    lines = (ROOT / manual).read_text("utf-8").splitlines()
    found = [line for line in lines if line.startswith("| ")]
    return [line for line in found if line.split("|")[1].strip() not in headings]


def named_tests(text: str) -> list[tuple[str, str]]:
    """Return file and name of each test that a text refers to.

    Parameters
    ----------
    text
        Markdown; Python files are named below ``tests``, Go files below ``operator/guest``.
    """
    return NAMED.findall(text)


def missing_tests(named: list[tuple[str, str]]) -> list[str]:
    """Return the tests that do not exist."""
    return [f"{path}::{name}" for path, name in named if name not in found_in(path)]


@cache
def found_in(path: str) -> frozenset[str]:
    """Return the names of the tests in a file; empty = there is no such file."""
    if path.endswith(".go"):
        file = ROOT / "operator" / "guest" / path
        return frozenset(GO_TEST.findall(file.read_text("utf-8"))) if file.exists() else frozenset()
    file = ROOT / "tests" / path
    if not file.exists():
        return frozenset()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    body = ast.parse(file.read_text("utf-8")).body
    return frozenset(each.name for each in body if isinstance(each, functions))
