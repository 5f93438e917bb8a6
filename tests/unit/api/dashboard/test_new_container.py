"""From the form of a new container to the body of a create."""

import pytest

from cloister_api.dashboard.forms import Form, parsed
from cloister_api.dashboard.pages.new_container import body_of, variables_of
from cloister_api.errors import ApiError


def test_a_form_is_the_body_of_a_create() -> None:
    fields = {
        "name": "web", "repo": "acme/web", "tag": "v1", "variables": "A=1\r\n\r\nB=x=y ",
        "secret:TOKEN": "on", "secret:tls-key": "on", "key:me": "on", "debug": "on",
        "staging": "on", "custom_domain": "api.example.test", "retry": "r",
    }  # fmt: skip
    assert body_of(Form(fields)) == {
        "name": "web", "repo": "acme/web", "tag": "v1", "variables": {"A": "1", "B": "x=y "},
        "secrets": ["TOKEN", "tls-key"], "ssh_keys": ["me"], "debug": True, "staging": True,
        "custom_domain": "api.example.test",
    }  # fmt: skip


def test_what_is_empty_is_left_to_the_defaults() -> None:
    assert body_of(Form({"name": "web"})) == {
        "name": "web", "repo": "", "tag": "", "variables": {}, "secrets": [], "ssh_keys": [],
        "debug": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"), [("A=1\nB", "has no ="), ("A=1\n A =2", "is there twice")]
)
def test_a_wrong_line_of_the_variables_is_named(text: str, why: str) -> None:
    with pytest.raises(ApiError, match=why):
        variables_of(text)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"", {}),
        (b"a=1&b=", {"a": "1", "b": ""}),
        (b"a=+x+%26+y+", {"a": "x & y"}),
        (b"a=%C3%A9", {"a": "\u00e9"}),
    ],
)
def test_a_form_is_read(body: bytes, fields: dict[str, str]) -> None:
    assert parsed(body) == fields


@pytest.mark.parametrize("body", [b"a=1&a=2", b"a", b"a=%ff", "a=\u00e9".encode(), b"&&"])
def test_another_body_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        parsed(body)
    assert refused.value.status == 400
