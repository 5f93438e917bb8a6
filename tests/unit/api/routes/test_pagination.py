"""Lists in pieces: nothing twice, nothing left out, whatever happens between two pieces."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi import Request
from hypothesis import given
from hypothesis import strategies as st

from cloister_api.errors import ApiError
from cloister_api.routes.parameters import paginate

REQUEST = Request(
    {
        "type": "http",
        "path": "/api/secrets",
        "headers": [],
        "query_string": b"",
        "server": ("x", 1),
        "scheme": "http",
    }
)


def key(entry: str) -> tuple[str, ...]:
    return (entry,)


def following(headers: dict[str, str]) -> str | None:
    if not headers:
        return None
    found = re.fullmatch(r'<(/api/secrets\?[^>]+)>; rel="next"', headers["link"])
    assert found
    return parse_qs(urlsplit(found[1]).query)["cursor"][0]


@pytest.mark.spec("20.16")
def test_without_limit_and_cursor_the_list_is_whole_and_in_its_order() -> None:
    assert paginate(REQUEST, ["b", "a"], key, None, None) == (["b", "a"], {})


@given(st.sets(st.text(max_size=8), max_size=30), st.integers(1, 7))
def test_pieces_together_are_the_list(entries: set[str], limit: int) -> None:
    got: list[str] = []
    cursor = None
    while True:
        shown, headers = paginate(REQUEST, entries, key, limit, cursor)
        assert len(shown) <= limit
        got += shown
        cursor = following(headers)
        if cursor is None:
            break
    assert got == sorted(entries)


def test_what_comes_and_goes_between_two_pieces_disturbs_no_other() -> None:
    shown, headers = paginate(REQUEST, ["a", "b", "c", "d"], key, 2, None)
    assert shown == ["a", "b"]
    rest, headers = paginate(REQUEST, ["a", "aa", "c", "d"], key, 2, following(headers))
    assert (rest, headers) == (["c", "d"], {})


@pytest.mark.parametrize("cursor", ["", "x", "!!", "bnVsbA", "WzFd", "é", "IiI"])
def test_a_cursor_of_somebody_else_is_refused(cursor: str) -> None:
    with pytest.raises(ApiError) as refused:
        paginate(REQUEST, ["a"], key, None, cursor)
    assert (refused.value.status, refused.value.details[0].field) == (400, "cursor")
