"""Every regular expression of the code takes a time that is linear in what it is given.

The expressions are found in the source, so that a new one cannot be forgotten: each call of `re`,
and each form of a field of the contract. Those of request bodies and settings (``pattern=``) are
run by an engine that does not backtrack, and are run here as well: the document shows them to
clients.
"""

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cloister_crds.config.syntax import scalars
from tests.support.regex_attacks import TooSlow, attacks, seconds_of

ROOT = Path(__file__).parents[2]
PACKAGES = (
    ROOT / "api" / "cloister_api",
    ROOT / "operator" / "cloister_operator",
    ROOT / "crds" / "cloister_crds",
    ROOT / "crds" / "cloister_clients",
    ROOT / "crds" / "cloister_cli",
)
SEARCHES = {"match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn"}
FORMS = {"matches"}
"""Functions of the contract that take an expression."""
LARGEST = 1024 * 1024
"""Largest text that any expression is given, in characters."""
SIZES = (2 * 1024, 16 * 1024, LARGEST)
SECONDS = 0.02
PER_CHARACTER = 1e-6
"""Longest CPU time: a linear expression takes a tenth, a quadratic one more from 16 KiB on."""
SLOWEST = 2
"""How many texts are tried at the next larger size."""
BUILT = {
    ("cloister_crds.schema.markers", "pattern"): "each is a form of the contract, found by itself",
    ("cloister_cli.bundle", "'|'.join(map(re.escape, longest_first))"): "words alone",
}
"""Expressions that are made while a program runs, and why they are linear."""
WHOLE = {"cloister_crds.config.syntax.scalars"}
"""Modules whose expressions are applied by another name, to whole texts."""
SHORT = {scalars.PART: 39 * 32}
"""Expressions that are given short texts only, and how long these are: here 32 parts, which another
expression has matched."""


@dataclass(frozen=True)
class Found:
    """An expression in the source."""

    place: str
    """Module, line and column."""
    pattern: Any
    """The expression."""
    flags: int
    """Its flags."""
    methods: tuple[str, ...]
    """How it is applied."""


@cache
def sources() -> dict[str, ast.Module]:
    """Return the modules by their names."""
    found = {}
    for package in PACKAGES:
        for file in sorted(package.rglob("*.py")):
            parts = file.relative_to(package.parent).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            found[name] = ast.parse(file.read_text("utf-8"))
    return found


@cache
def applied() -> dict[str, set[str]]:
    """Return the methods of expressions that are called on each name, in any module."""
    found: dict[str, set[str]] = {}
    for tree in sources().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in SEARCHES:
                found.setdefault(ast.unparse(node.value).rpartition(".")[2], set()).add(node.attr)
    return found


def names_of(tree: ast.Module) -> dict[int, str]:
    """Return the names of module constants and attributes, by the line of what they are."""
    return {
        inner.lineno: ast.unparse(target).rpartition(".")[2]
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if node.value is not None
        for inner in ast.walk(node.value)
        if isinstance(inner, ast.Call)
    }


def evaluated(module: ModuleType, node: ast.expr) -> Any:
    """Return the value of an expression of constants of a module."""
    code = compile(ast.Expression(node), module.__name__, "eval")
    try:
        return eval(code, vars(module))
    except NameError as error:
        raise AssertionError(
            f"{module.__name__}:{node.lineno}: {ast.unparse(node)} is made while the program runs: "
            "add it to BUILT, with why it is linear"
        ) from error


def is_call_of_re(node: ast.Call) -> bool:
    """Return whether a call is one of the standard library's expressions."""
    function = node.func
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
        and function.attr in SEARCHES | {"compile"}
    )


def given(node: ast.Call) -> Iterator[tuple[ast.expr, ast.expr | None, str]]:
    """Yield the expressions that a call has, their flags, and the method of `re`."""
    if is_call_of_re(node):
        assert isinstance(node.func, ast.Attribute)
        at = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(node.func.attr, 2)
        flags = [each.value for each in node.keywords if each.arg == "flags"]
        yield node.args[0], [*node.args[at : at + 1], *flags, None][0], node.func.attr
    elif isinstance(node.func, ast.Name) and node.func.id in FORMS:
        yield node.args[0], None, "fullmatch"
    for each in node.keywords:
        if each.arg == "pattern" and not is_call_of_re(node):
            yield each.value, None, "fullmatch"


def expressions() -> Iterator[Found]:
    """Yield every expression of the code."""
    for name, tree in sources().items():
        module, names = None, names_of(tree)
        for node in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
            for expression, flags, method in given(node):
                if (name, ast.unparse(expression)) in BUILT:
                    continue
                module = module or importlib.import_module(name)
                pattern = evaluated(module, expression)
                methods = {method}
                if method == "compile":
                    otherwise = {"fullmatch"} if name in WHOLE else {"search"}
                    methods = applied().get(names.get(node.lineno, ""), otherwise)
                yield Found(
                    f"{name}:{expression.lineno}:{expression.col_offset}",
                    pattern,
                    evaluated(module, flags) if flags is not None else 0,
                    tuple(sorted(methods)),
                )


EXPRESSIONS = {each.place: each for each in expressions() if isinstance(each.pattern, str | bytes)}


def text_of(attack: tuple[str, str, str], size: int, pattern: Any) -> Any:
    """Return the text of an attack in a size, as an expression takes it."""
    begin, unit, end = attack
    text = begin + unit * ((size - len(begin) - len(end)) // len(unit)) + end
    return text if isinstance(pattern, str) else text.encode("latin-1", "replace")


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_the_time_of_an_expression_is_linear(place: str) -> None:
    found = EXPRESSIONS[place]
    compiled: re.Pattern[Any] = re.compile(found.pattern, found.flags)
    text = found.pattern if isinstance(found.pattern, str) else found.pattern.decode("latin-1")
    tried = attacks(text, found.flags)
    largest = SHORT.get(text, LARGEST)
    for size in sorted({min(each, largest) for each in SIZES}):
        limit = SECONDS + PER_CHARACTER * size
        costs: dict[tuple[str, str, str], float] = {}
        for attack in tried:
            for method in found.methods:
                try:
                    cost = seconds_of(compiled, method, text_of(attack, size, found.pattern), limit)
                except TooSlow:
                    pytest.fail(f"{text!r}.{method} takes over {limit:.3f} s for {attack} * {size}")
                costs[attack] = max(costs.get(attack, 0), cost)
        tried = sorted(costs, key=lambda each: costs[each], reverse=True)[:SLOWEST]


def test_expressions_are_found() -> None:
    """A reader of the source that finds nothing would be content with everything."""
    places = {each.partition(":")[0] for each in EXPRESSIONS}
    assert {"cloister_api.http.middleware", "cloister_clients.registry.auth"} <= places
    assert {"cloister_crds.config.limits", "cloister_operator.settings"} <= places
    assert len(EXPRESSIONS) > 100


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r'"(?:[^"\\]|\\.)*+"', "sub"),
        (r'[\s,]*([a-z]+)(?:="((?:[^"\\]|\\.)*)")?', "findall"),
        (r"(a+)+b", "fullmatch"),
        (r"\s+$", "search"),
        (r"https://[^/]+\.[^/]+/x", "fullmatch"),
    ],
)
def test_an_expression_that_tries_again_is_noticed(pattern: str, method: str) -> None:
    def tried() -> None:
        for attack in attacks(pattern, 0):
            text = text_of(attack, 128 * 1024, pattern)
            seconds_of(re.compile(pattern), method, text, limit=0.2)

    with pytest.raises(TooSlow):
        tried()
