"""JSON of foreign servers: bounded before it is parsed."""

import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister_clients.foreign_json import TooManyValues, check_values, parse_apart, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=5),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=3), each),
    max_leaves=20,
)


def count(value: object) -> int:
    """Count the values of a document."""
    if isinstance(value, dict):
        return 1 + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


@given(VALUES)
def test_a_document_is_parsed_as_by_the_standard_library(value: object) -> None:
    assert parse_json(json.dumps(value).encode(), most=1000) == value


@given(VALUES)
def test_no_document_has_more_values_than_are_allowed(value: object) -> None:
    with pytest.raises(TooManyValues, match="at most"):
        check_values(json.dumps(value).encode() + b"," * 2, most=1)
    check_values(json.dumps(value).encode(), most=10_000)
    # Each value but the first was counted by what stands before it.
    with pytest.raises(TooManyValues):
        check_values(json.dumps([value]).encode(), most=(count(value) - 1) // 2)


@pytest.mark.parametrize("body", [b"", b"{", b"[1,]", b"\xff", b"[" * 1000, b'{"a":' * 1000])
def test_what_is_not_json_or_too_deep_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the parser's own words
        parse_json(body, most=10_000)


async def test_only_a_large_document_leaves_the_event_loop() -> None:
    def parse(body: bytes) -> str:
        return threading.current_thread().name

    assert await parse_apart(parse, b"x" * 65_536) == threading.current_thread().name
    assert await parse_apart(parse, b"x" * 65_537) != threading.current_thread().name
