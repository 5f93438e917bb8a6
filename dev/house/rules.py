"""Check that every rule of the configuration file has its tests.

`RULES` lists rules with their numbers in the specification and their tests; both must exist. Each
rule of that part of the specification is in this list or in `MANUAL`.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dev.house.finding import Finding

RULES: Final = Path("tests/data/rules.toml")
"""Where the rules are listed."""
SPECIFICATION: Final = Path("docs/spec/configuration-file.md")
"""The part of the specification that they come from."""
MANUAL: Final = Path("docs/development/api-rules.md")
"""Rules that only an enclave shows: rows of a table, whose tests another test checks."""
ANCHOR: Final = re.compile(r'<a id="([0-9]+\.[0-9]+)"></a>')


def check(root: Path) -> list[Finding]:
    """Find rules without a test, and rules of the specification without an entry."""
    rules = tomllib.loads((root / RULES).read_text("utf-8"))["rule"]
    numbers = set(ANCHOR.findall((root / SPECIFICATION).read_text("utf-8")))
    found = [
        *_repeated(rules),
        *_untested(rules, root),
        *_unnumbered(rules, numbers),
        *_missing(rules, numbers, (root / MANUAL).read_text("utf-8")),
    ]
    return [Finding(RULES, 0, message) for message in found]


def _repeated(rules: list[dict[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    for rule in rules:
        if rule["row"] in seen:
            yield f"{rule['row']}: has two entries; join them"
        seen.add(rule["row"])


def _unnumbered(rules: list[dict[str, Any]], numbers: set[str]) -> Iterator[str]:
    """Find entries without a rule of the specification, or with one that does not exist."""
    for rule in rules:
        if not rule["spec"]:
            yield f"{rule['row']}: has no number of {SPECIFICATION}"
        for number in rule["spec"]:
            if number not in numbers:
                yield f"{rule['row']}: spec {number} is not in {SPECIFICATION}"


def _missing(rules: list[dict[str, Any]], numbers: set[str], manual: str) -> Iterator[str]:
    """Find rules of the specification that have neither an entry nor a row of the manual."""
    listed = {number for rule in rules for number in rule["spec"]}
    rows = "\n".join(line for line in manual.splitlines() if line.startswith("|"))
    linked = re.findall(rf"{SPECIFICATION.name}#([0-9]+\.[0-9]+)\)", rows)
    for number in sorted(numbers - listed - {*linked}, key=_parts):
        yield f"spec {number}: has no entry, and no row of {MANUAL}; add one"


def _parts(number: str) -> tuple[int, int]:
    section, _, rule = number.partition(".")
    return int(section), int(rule)


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
