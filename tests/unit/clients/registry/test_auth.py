"""Challenges of HTTP, taken apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister_clients.registry.auth import Challenge, parse_challenges


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
