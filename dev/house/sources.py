"""Rules for the content of a Python file: length, docstring, exports, suppressions, sleeps."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from dev.house.finding import Finding
from dev.house.layout import python_files

LONGEST_FILE = 500
"""Maximum lines of a file."""
LONGEST_FUNCTION = 60
"""Maximum lines of a function, without its docstring."""
WAITING = "tests/support/waiting.py"
"""The one file of the tests that may sleep, between two polls."""
NOQA = re.compile(r"#\s*noqa\b", re.IGNORECASE)
GOOD_NOQA = re.compile(r"# noqa: [A-Z]+[0-9]+(, [A-Z]+[0-9]+)* - \S.+")
IGNORE = re.compile(r"#\s*type:\s*ignore")
GOOD_IGNORE = re.compile(r"# type: ignore\[[a-z-]+(, ?[a-z-]+)*\]  # \S.+")
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields of statements that hold statements, or the parts of a statement that do."""
OWN_CLOCK = re.compile(
    r"\btime\.(?:monotonic|time|perf_counter)\b|\.time\(\)|\bsecrets\.token|\buuid4\b|\burandom\b"
    r"|\bRandom\("
)
"""Clocks and randomness that a simulation of the process does not control."""
SIMULATED = ("operator/cloister_operator/", "crds/cloister_clients/kube/", "crds/cloister_crds/")
"""Where what `OWN_CLOCK` names is reported, except in commands and in `MACHINE`."""
MACHINE = {
    "operator/cloister_operator/process/leader_election.py": "secrets.token",
    "crds/cloister_clients/kube/client.py": ".time()",
}
"""Module -> what it may use: the identity of a process, and the clock of its own event loop."""
LIBRARIES = {("crds", "cloister_crds"), ("crds", "cloister_clients")}


def check(root: Path) -> list[Finding]:
    """Check every Python file of the checkout."""
    found: list[Finding] = []
    for path in python_files(root):
        found += check_text(path.relative_to(root), path.read_text(encoding="utf-8"))
    return sorted(found)


def check_text(place: Path, text: str) -> list[Finding]:
    """Check one file.

    Parameters
    ----------
    place
        Path relative to the checkout; some rules hold in some folders only.
    """
    lines = text.count("\n")
    found = []
    if lines > LONGEST_FILE:
        found.append(
            Finding(place, 0, f"{lines} lines; {LONGEST_FILE} at most, split it by subject")
        )
    tree = ast.parse(text)
    if ast.get_docstring(tree) is None:
        found.append(Finding(place, 1, "no docstring; describe the module and its callers"))
    found += _functions(place, tree)
    found += _exports(place, tree)
    found += _suppressions(place, text)
    found += _clocks(place, text)
    # In the simulation a sleep is virtual.
    waits = place.as_posix() == WAITING or place.parts[:2] == ("tests", "simulation")
    if place.parts[0] == "tests" and not waits:
        found += _sleeps(place, tree, text)
    return found


def _functions(place: Path, tree: ast.Module) -> Iterator[Finding]:
    for node in _statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1 - _docstring_lines(node)
            if length > LONGEST_FUNCTION:
                yield Finding(
                    place,
                    node.lineno,
                    f"{node.name} has {length} lines; {LONGEST_FUNCTION} at most, split it",
                )


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Return all statements, without what they are made of: twenty times as many expressions."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        yield node
        for part in BLOCKS:
            stack += getattr(node, part, ())


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    if ast.get_docstring(node, clean=False) is None:
        return 0
    first = node.body[0]
    return (first.end_lineno or first.lineno) - first.lineno + 1


def _exports(place: Path, tree: ast.Module) -> Iterator[Finding]:
    """Require ``__all__`` in the libraries, whose users are programs; ruff sorts it (RUF022)."""
    if place.parts[:2] not in LIBRARIES or len(tree.body) <= 1:
        return
    if not any(_assigns_all(node) for node in tree.body):
        yield Finding(place, 1, "no __all__; list what others may import")


def _assigns_all(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def _suppressions(place: Path, text: str) -> Iterator[Finding]:
    """Require a code and a reason for every suppressed warning."""
    if not NOQA.search(text) and not IGNORE.search(text):
        # Splitting all files into tokens takes as long as every other rule together.
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if NOQA.search(token.string) and not GOOD_NOQA.search(token.string):
            yield Finding(place, line, "write `# noqa: CODE - reason`")
        if IGNORE.search(token.string) and not GOOD_IGNORE.search(token.string):
            yield Finding(place, line, "write `# type: ignore[code]  # reason`")


def _clocks(place: Path, text: str) -> Iterator[Finding]:
    """Report clocks and randomness in what is simulated, which has them from elsewhere."""
    name = place.as_posix()
    if not name.startswith(SIMULATED) or "/commands/" in name:
        return
    for number, line in enumerate(text.splitlines(), 1):
        found = OWN_CLOCK.search(line)
        if found and found[0] != MACHINE.get(name):
            yield Finding(
                place, number, f"{found[0]}: use cloister_clients.clock or the module random"
            )


def _sleeps(place: Path, tree: ast.Module, text: str) -> Iterator[Finding]:
    """Report sleeps in tests, except ``asyncio.sleep(0)``, which only yields to other tasks."""
    if "sleep" not in text:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "sleep" for alias in node.names):
            yield Finding(place, node.lineno, "tests do not sleep; wait with tests.support.waiting")
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        callee = node.func
        if callee.attr != "sleep" or not isinstance(callee.value, ast.Name):
            continue
        module = callee.value.id
        yields = module in {"asyncio", "anyio"} and [ast.unparse(a) for a in node.args] == ["0"]
        if module in {"asyncio", "anyio", "time"} and not yields:
            yield Finding(place, node.lineno, "tests do not sleep; wait with tests.support.waiting")
