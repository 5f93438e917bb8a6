"""The lines around problems have the numbers that the parser gives them."""

import pytest

from cloister_api.services.containers.validation import excerpt
from cloister_crds.config import Rules, parse
from cloister_crds.problems import Problem

FILE = b"\n".join(b"line %d" % number for number in range(1, 21))


def at(*lines: int | None) -> list[Problem]:
    return [Problem("a", "Wrong", "is wrong", line=line) for line in lines]


def test_three_lines_before_and_after_each_problem_are_shown_once() -> None:
    shown = excerpt(FILE, at(2, 4, None, 19))
    assert list(shown) == [str(number) for number in (*range(1, 8), *range(16, 21))]
    assert shown["7"] == "line 7"
    assert excerpt(FILE, at(None)) == {}
    assert excerpt(b"", at(1)) == {"1": ""}


def test_long_lines_and_other_bytes_are_bounded() -> None:
    shown = excerpt(b"a" * 1000 + b"\n\xff\xfe", at(1))
    assert shown == {"1": "a" * 400, "2": "\N{REPLACEMENT CHARACTER}" * 2}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x85", "\u2028", "\u2029"])
def test_lines_are_counted_as_the_parser_counts_them(end: str) -> None:
    file = end.join(["# one", "# two", "cpus: 2", "colour: red", ""]).encode()
    problems = parse(file, rules=Rules()).problems
    found = [each for each in problems if each.field == "colour"]
    assert excerpt(file, found)[str(found[0].line)] == "colour: red"
