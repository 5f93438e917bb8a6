"""Path rules as expressions; the real Caddy is asked in tests/api/shim."""

import re

import pytest

from cloister_operator.enclave.routing import DOT_SEGMENTS, path_pattern

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
]


@pytest.mark.parametrize(("rule", "target", "fits"), CASES)
def test_rule(rule: str, target: str, *, fits: bool) -> None:
    assert (re.search(path_pattern(rule), target) is not None) is fits


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
