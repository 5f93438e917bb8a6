"""Path rules as expressions; tests/api/shim checks them in the real Caddy."""

import posixpath
import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister_operator.enclave.path_rules import (
    AMBIGUOUS,
    DOT_SEGMENTS,
    path_pattern,
    reaching_pattern,
)

CASES = [
    ("/chat", "/chat", True),
    ("/chat", "/chat?x=/other", True),
    ("/chat", "/chat/", False),
    ("/chat", "/Chat", False),
    ("/chat", "/%63hat", True),
    ("/chat", "/chatty", False),
    ("/v1/user/*", "/v1/user/", True),
    ("/v1/user/*", "/v1/user/1/2", True),
    ("/v1/user/*", "/v1/user", False),
    ("/v1/chat*", "/v1/chat", True),
    ("/v1/chat*", "/v1/chat/x", True),
    ("/v1/chat*", "/v1/chatty", False),
    ("/v1/chat*", "/v1/chat%2Fx", False),
    ("/v1/chat*", "/v1/chat?x", True),
    ("/a/b", "/a%2fb", False),
    ("/a*b", "/a*b", True),
    ("/a*b", "/axb", False),
    ("/a*b", "/a%2Ab", True),
    ("/ä", "/%c3%A4", True),
    ("/(x)[y]^-\\", "/(x)[y]^-\\", True),
    ("/a.b", "/axb", False),
    ("/a?b", "/a%3Fb", True),
    ("/", "/", True),
    ("/", "//", False),
    ("/{id}", "/{id}", True),
    ("/{id}", "/%7Bid%7D", True),
    ("/caf%C3%A9", "/caf%c3%a9", True),
    ("/a%2Fb", "/a%2fb", True),
    ("/a%2Fb", "/a/b", False),
    ("/a%20b", "/a%20b", True),
    ("/a%20b", "/a%2520b", False),
    ("/100%", "/100%25", True),
    ("/100%25", "/100%25", True),
    ("/a%2A", "/a*", True),
    ("/a%2A", "/a/b", False),
]


@pytest.mark.spec("29.1", "29.2", "29.3", "29.4")
@pytest.mark.parametrize(("rule", "target", "fits"), CASES)
def test_rule(rule: str, target: str, *, fits: bool) -> None:
    assert (re.search(path_pattern(rule), target) is not None) is fits


@pytest.mark.spec("29.5")
@pytest.mark.parametrize(
    "target",
    ["/v1/../x", "/v1/..", "/v1/.", "/./v1", "/v1/%2e%2E/x", "/v1/..%2fx", "/v1/%5c..%5cx",
     "/v1/.%2e?q", "/v1/..;/x", "/v1\\..\\x"],
)  # fmt: skip
def test_dot_segments_are_seen_in_every_spelling(target: str) -> None:
    assert re.search(DOT_SEGMENTS, target)


@pytest.mark.parametrize(
    "target", ["/v1/x", "/v1/...", "/v1/.well-known", "/v1/x?p=/../", "/a..b/"]
)
def test_other_dots_are_no_dot_segments(target: str) -> None:
    assert not re.search(DOT_SEGMENTS, target)


REACHING = [
    ("/v1/chat", "/v1/chat", True),
    ("/v1/chat", "/V1//ChAt/", True),
    ("/v1/chat", "\\v1%2f%5Cchat", True),
    ("/v1/chat", "/v1;x/chat;y=/z", True),
    ("/v1/chat", "/v1/%43hat.json?x", True),
    ("/v1/chat", "/v1/chat%0A", True),
    ("/v1/chat", "/v1/chat/x", False),
    ("/v1/chat", "/v1/chats", False),
    ("/v1/chat", "/v1/chat-2", False),
    ("/v1/chat", "/x/v1/chat", False),
    ("/v1/chat", "/x?/v1/chat", False),
    ("/v1/*", "/V1", True),
    ("/v1/*", "/v1%2Fx?y", True),
    ("/v1/*", "/v10", False),
    ("/v1*", "/v1/x", True),
    ("/v1*", "/v10", False),
    ("/", "/", True),
    ("/", "//", True),
    ("/", "/x", False),
    ("/*", "/any%2fthing?x", True),
    ("/a.b/", "/A%2EB", True),
    ("/a.b/", "/aXb", False),
    ("/a%2Fb", "/a/b", True),
    ("/%43af", "/%63AF", True),
]


@pytest.mark.parametrize(("rule", "target", "fits"), REACHING)
def test_reaching(rule: str, target: str, *, fits: bool) -> None:
    assert (re.search(reaching_pattern(rule), target) is not None) is fits


def lenient(target: str) -> str:
    """Read a target as a careless server does: decoded twice, folded, without what is optional."""
    path = unquote(unquote(target.partition("?")[0])).replace("\\", "/").lower()
    path = re.split(r"[?#\x00]", path)[0]
    path = "/".join(segment.partition(";")[0] for segment in path.split("/"))
    path = posixpath.normpath("/" + path.strip())
    return "/" + path.strip("/ ").removesuffix(".json")


PIECES = (
    "/ / // %2f %5C \\ . .. %2e %252e %252F ; ;a=b %3b v1 V1 %76%31 %2576 "
    "chat CHAT ch%61t %43HAT x .json %20 %00 ?q"
)
SPELLINGS = st.lists(st.sampled_from(PIECES.split()), max_size=9).map(
    lambda parts: "/" + "".join(parts)
)


@given(SPELLINGS)
def test_what_a_careless_server_takes_for_the_path_needs_the_key(target: str) -> None:
    keyed = any(re.search(each, target) for each in (reaching_pattern("/v1/chat"), AMBIGUOUS))
    if lenient(target) == "/v1/chat":
        assert keyed


@given(SPELLINGS, st.sampled_from(["/v1/chat", "/v1/*", "/v1*", "/*", "/"]))
def test_what_is_listed_is_reached(target: str, rule: str) -> None:
    if re.search(path_pattern(rule), target):
        assert re.search(reaching_pattern(rule), target)
