"""Texts that make a regular expression try again and again, derived from the expression itself.

A repetition is pumped: a text that leads to it, then what it repeats many times, then what it does
not expect. An engine that backtracks may try each division of the middle, or each place to begin.
"""

# mypy: disable-error-code="attr-defined, import-not-found"

import itertools
import re
import signal
import time
from collections.abc import Callable, Iterator
from re import _constants, _parser
from types import FrameType
from typing import Any, AnyStr

__all__ = ["TooSlow", "attacks", "seconds_of"]

CHARACTERS = "a0 \t\"\\,;=/.-_:<>[]{}()#%&+*@!~|$^?`'\nAéz"
"""What stands for the characters of a class."""
OF_CATEGORY = {"DIGIT": "0", "SPACE": " \t\n", "WORD": "a0_Aéz"}
ENDINGS = ("", "\x00", "!")
REPEATS = {_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT}
MOST_VARIANTS = 6
MOST_UNITS = 40
MOST_SINGLES = 10
MOST_BEGINNINGS = 8


class TooSlow(Exception):  # noqa: N818 - says what is wrong
    """A search took longer than it may."""


def seconds_of(pattern: "re.Pattern[AnyStr]", method: str, text: AnyStr, limit: float) -> float:
    """Return the CPU time of a search.

    Parameters
    ----------
    limit
        Longest CPU time in seconds.

    Raises
    ------
    TooSlow
        When it takes longer.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    search = getattr(pattern, method)
    arguments = (text[:0], text) if method in {"sub", "subn"} else (text,)
    before = signal.signal(signal.SIGVTALRM, stop)
    begun = time.thread_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        found = search(*arguments)
        if method == "finditer":
            for _ in found:
                pass
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return time.thread_time() - begun


def attacks(pattern: str, flags: int) -> list[tuple[str, str, str]]:
    """Return beginnings, units to repeat and ends of texts that may cost an expression much."""
    tree = _parser.parse(pattern, flags)
    pumped = set(pumps(tree, ""))
    short = units(tree, pattern)
    found = {("", each) for each in short} | pumped
    found |= {
        (begin, each)
        for begin in sorted({begin for begin, _ in pumped} | {example(tree)})[:MOST_BEGINNINGS]
        for each in short[:MOST_SINGLES]
    }
    return [(begin, unit, end) for begin, unit in sorted(found) if unit for end in ENDINGS]


def units(tree: Any, pattern: str) -> list[str]:
    """Return short texts of the characters of an expression."""
    letters = [*dict.fromkeys(each for each in [*pattern, *example(tree)] if each.isascii())]
    singles = [
        each for each in [*letters, " ", ",", '"', "\\", "a", "0"] if each not in "()?*+[]{}^$|"
    ]
    singles = [*dict.fromkeys(singles)]
    pairs = ["".join(pair) for pair in itertools.permutations(singles[:8], 2)]
    whole = example(tree)
    return [*singles, whole, *(f"{whole}{each}" for each in ", ;"), *pairs][:MOST_UNITS]


def pumps(tree: Any, begin: str) -> Iterator[tuple[str, str]]:
    """Yield what leads to each repetition of an expression, and what it repeats."""
    for node in tree:
        operation, value = node
        if operation in REPEATS:
            yield from ((begin, each) for each in variants(value[2]))
            yield from pumps(value[2], begin)
        elif operation is _constants.BRANCH:
            for branch in value[1]:
                yield from pumps(branch, begin)
        elif operation is _constants.SUBPATTERN:
            yield from pumps(value[3], begin)
        elif operation is _constants.ATOMIC_GROUP:
            yield from pumps(value, begin)
        begin += example([node])


def variants(tree: Any) -> list[str]:
    """Return texts that an expression matches, and that differ in one place."""
    whole, found = list(tree), [example(tree)]
    for place, node in enumerate(whole):
        for text in alternatives(node):
            others = [example([each]) for each in whole]
            others[place] = text
            found.append("".join(others))
    return [*dict.fromkeys(found)][:MOST_VARIANTS]


def alternatives(node: Any) -> list[str]:
    """Return texts that a node of an expression matches."""
    operation, value = node
    if operation is _constants.IN:
        return members(value)
    if operation is _constants.BRANCH:
        return [example(each) for each in value[1]]
    if operation is _constants.SUBPATTERN:
        return variants(value[3])
    if operation is _constants.ATOMIC_GROUP:
        return variants(value)
    if operation in REPEATS:
        return [each * max(1, value[0]) for each in variants(value[2])]
    return [example([node])]


def example(tree: Any) -> str:
    """Return a text that an expression matches, if its assertions hold."""
    return "".join(EXAMPLES[operation](value) for operation, value in tree if operation in EXAMPLES)


def members(items: Any) -> list[str]:
    """Return characters of a class, of different kinds."""
    negated = bool(items) and items[0][0] is _constants.NEGATE
    ends = [chr(each) for kind, value in items for each in ends_of(kind, value)]
    return [
        each for each in dict.fromkeys([*ends, *CHARACTERS]) if is_member(each, items) != negated
    ][:MOST_VARIANTS]


def ends_of(kind: Any, value: Any) -> tuple[int, ...]:
    """Return the first and the last character of an item of a class."""
    if kind is _constants.LITERAL:
        return (value,)
    return tuple(value) if kind is _constants.RANGE else ()


def is_member(character: str, items: Any) -> bool:
    """Return whether a character is among the items of a class."""
    for kind, value in items:
        if kind is _constants.LITERAL and ord(character) == value:
            return True
        if kind is _constants.RANGE and value[0] <= ord(character) <= value[1]:
            return True
        if kind is _constants.CATEGORY and in_category(character, value):
            return True
    return False


def repeated(value: Any) -> str:
    """Return an example of a repetition."""
    count: int = min(max(value[0], 1), value[1])
    return example(value[2]) * count


EXAMPLES: dict[Any, Callable[[Any], str]] = {
    _constants.LITERAL: chr,
    _constants.NOT_LITERAL: lambda value: "a" if chr(value) != "a" else "0",
    _constants.ANY: lambda _: "a",
    _constants.IN: lambda value: next(iter(members(value)), ""),
    _constants.BRANCH: lambda value: example(value[1][0]),
    _constants.SUBPATTERN: lambda value: example(value[3]),
    _constants.ATOMIC_GROUP: example,
    **dict.fromkeys(REPEATS, repeated),
}
"""What makes an example of a node; others, such as assertions, match no characters."""


def in_category(character: str, category: Any) -> bool:
    """Return whether a character is of a category, such as digits."""
    name = str(category).rpartition("CATEGORY_")[2]
    return (character in OF_CATEGORY[name.removeprefix("NOT_")]) != name.startswith("NOT_")
