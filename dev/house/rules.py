"""Check that every rule of the configuration file has its tests.

`RULES` names the rules. Each of its tests must exist. Where the texts that the
rules come from are beside the checkout, each row of their tables must have an entry.
"""

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dev.house.finding import Finding

__all__ = ["check"]

RULES: Final = Path("tests/data/rules.toml")
"""Where the rules are listed."""
TABLES: Final = ("top-level", "container", "rules")
"""Tables whose rows are compared; entries of other groups come from prose."""
MAX_NAME: Final = 40
"""Maximum length of a row's name."""


def check(root: Path, texts: Path | None = None) -> list[Finding]:
    """Find rules without a test, and rows of the texts without a rule.

    Parameters
    ----------
    root
        The checkout.
    texts
        Folder of the texts; None = beside the checkout, or beside ``CLOISTER_CORPUS``.
    """
    rules = tomllib.loads((root / RULES).read_text("utf-8"))["rule"]
    found = [*_repeated(rules), *_untested(rules, root)]
    if texts is None:
        corpus = os.environ.get("CLOISTER_CORPUS")
        texts = Path(corpus).parent if corpus else root.parent / "shared"
    specification = texts / "spec/admin-api.md"
    own = texts / "reference/config-file.md"
    if specification.is_file() and own.is_file():
        rows = {*_rows_of_part(specification.read_text("utf-8")), *_rows(own.read_text("utf-8"))}
        found += _differences({rule["row"] for rule in rules}, rows)
    return [Finding(RULES, 0, message) for message in found]


def _repeated(rules: list[dict[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    for rule in rules:
        if rule["row"] in seen:
            yield f"{rule['row']}: has two entries; join them"
        seen.add(rule["row"])


def _untested(rules: list[dict[str, Any]], root: Path) -> Iterator[str]:
    """Find rules without a test, and tests that do not exist."""
    functions: dict[str, set[str]] = {}
    for rule in rules:
        if not rule["tests"]:
            yield f"{rule['row']}: has no test"
        for test in rule["tests"]:
            path, _, name = test.partition("::")
            if path not in functions:
                functions[path] = _functions(root / path)
            if name not in functions[path]:
                yield f"{rule['row']}: there is no test {test}"


def _functions(path: Path) -> set[str]:
    """Return the names of all top-level functions of a file; empty = there is no such file."""
    if not path.is_file():
        return set()
    body = ast.parse(path.read_text("utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def _differences(entries: set[str], rows: set[str]) -> Iterator[str]:
    for row in sorted(rows - entries):
        yield f"{row}: is in the texts and has no entry; add one"
    for entry in sorted(entries - rows):
        if entry.partition(":")[0] in TABLES:
            yield f"{entry}: is in no table of the texts any more"


def _rows_of_part(text: str) -> Iterator[str]:
    """Return the rows of the specification's part about the configuration file."""
    part = text.partition("### Container configuration file")[2]
    yield from _rows(re.split(r"^## ", part, flags=re.MULTILINE)[0])


def _rows(text: str) -> Iterator[str]:
    """Return the rows of all tables, named by the words before the table and the first cell."""
    title = ""
    inside = False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
            title = line.strip("# ").lower() or title
        elif set(line) <= set("|-: "):
            inside = True
        elif inside:
            yield f"{title.split()[0].rstrip(':')}: {_slug(line.split('|')[1])}"


def _slug(cell: str) -> str:
    """Return a short name of a cell: its words outside parentheses, but for a short remark."""
    words = re.sub(r"\(([^()]{0,12})\)|\(.*\)", r"\1", cell.replace("`", ""))
    slug = re.sub(r"[^a-z0-9_-]+", "-", words.strip().lower()).strip("-")
    return slug[:MAX_NAME].rstrip("-")
