"""Challenges of HTTP, taken apart."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister_clients.registry.auth import (
    MAX_CHALLENGE,
    MAX_CHALLENGES,
    Challenge,
    parse_challenges,
)


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([], []),
        (['Basic realm="x"'], [Challenge("basic", {"realm": "x"})]),
        (["Negotiate"], [Challenge("negotiate")]),
        (
            ['Bearer realm="https://a.test/token",service="s",scope="repository:a/b:pull,push"'],
            [
                Challenge(
                    "bearer",
                    {
                        "realm": "https://a.test/token",
                        "service": "s",
                        "scope": "repository:a/b:pull,push",
                    },
                )
            ],
        ),
        (
            ['Basic realm="x", Bearer Realm = "y" , service=z'],
            [
                Challenge("basic", {"realm": "x"}),
                Challenge("bearer", {"realm": "y", "service": "z"}),
            ],
        ),
        (
            ["Negotiate", r'Basic realm="a \"b\" \\ c"'],
            [Challenge("negotiate"), Challenge("basic", {"realm": 'a "b" \\ c'})],
        ),
        (['Bearer realm="a",realm="b"'], [Challenge("bearer", {"realm": "a"})]),
    ],
)
def test_a_header_can_hold_several_challenges(values: list[str], want: list[Challenge]) -> None:
    assert parse_challenges(values) == want


@given(st.lists(st.text(max_size=100), max_size=3))
def test_any_header_can_be_read(values: list[str]) -> None:
    for challenge in parse_challenges(values):
        assert challenge.scheme


@pytest.mark.attack("commas-in-401")
@pytest.mark.parametrize(
    "unit", [",", " ", "\t,", "a", "a,", "a ", 'a="\\"', 'a="b",', "a=b,", '"', "\\"]
)
def test_the_headers_of_a_hostile_registry_cost_little(unit: str) -> None:
    """A client receives 100 KiB of headers; one 401 took 3 s of an event loop."""
    values = [unit * (8192 // len(unit))] * 12
    begun = time.thread_time()
    parse_challenges(values)
    assert time.thread_time() - begun < 0.25  # 0.01 s where nothing is tried twice.


def test_few_headers_of_a_bounded_length_are_read() -> None:
    long = f'Basic realm="x{" " * MAX_CHALLENGE}", Bearer realm="y"'
    read = parse_challenges([long, *["Negotiate"] * MAX_CHALLENGES])
    assert [each.scheme for each in read] == ["basic", *["negotiate"] * (MAX_CHALLENGES - 1)]
