"""From the form of a new container to the body of a create."""

from typing import Any

import pytest
import yaml

from cloister_api.dashboard.pages.container_forms import (
    body_of,
    changes_of,
    container_manifest_of,
    filled,
    variables_of,
)
from cloister_api.dashboard.rendering import Form, parsed
from cloister_api.errors import ApiError
from cloister_crds.kinds.container import ContainerSpec


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


def test_blanks_are_cut_off_except_where_they_count() -> None:
    form = Form({"name": " web\r\n", "value": " a\r\nb\u2028c\r\n"})
    assert form.get("name") == "web"
    assert form.whole("value") == " a\nb\u2028c\n"
    assert variables_of(Form({"v": "A=1\u20282\r\nB=2"}).whole("v")) == {"A": "1\u20282", "B": "2"}


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
        (b"a=+x+%26+y+", {"a": " x & y "}),
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


def spec_of(**more: Any) -> ContainerSpec:
    return ContainerSpec.model_validate(
        {"repo": "acme/web", "tag": "v1", "variables": [{"name": "A", "value": "1"}], **more}
    )


def test_a_form_that_nobody_changed_changes_nothing() -> None:
    spec = spec_of(secrets=["B", "A"], staging=True, gpus=1, host="big", debug=True, sshKeys=["k"])
    assert changes_of(filled(spec), spec) == {}


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({"tag": "v2"}, {"tag": "v2"}),
        ({"variables": "A=1\r\nB=2"}, {"variables": {"A": "1", "B": "2"}}),
        ({"variables": ""}, {"variables": {}}),
        ({"secret:X": "on"}, {"secrets": ["X"]}),
        ({"staging": "on"}, {"staging": True}),
        ({"custom_domain": "a.example.test"}, {"custom_domain": "a.example.test"}),
        ({"gpus": "0"}, {"gpus": 0}),
        ({"gpus": "many"}, {"gpus": "many"}),
        ({"gpus": ""}, {}),
        ({"host": ""}, {}),
        ({"tag": ""}, {}),
    ],
)
def test_only_what_a_form_changes_is_sent(fields: dict[str, str], changes: dict[str, Any]) -> None:
    spec = spec_of()
    assert changes_of(Form({**filled(spec).fields, **fields}), spec) == changes


def test_what_is_emptied_goes_back_to_the_generated_address() -> None:
    spec = spec_of(customDomain="a.example.test", secrets=["A"])
    fields = {**filled(spec).fields, "custom_domain": ""}
    del fields["secret:A"]
    assert changes_of(Form(fields), spec) == {"custom_domain": "", "secrets": []}


def test_a_change_is_a_manifest_too() -> None:
    changes = {
        "tag": "v2", "variables": {"A": "1"}, "ssh_keys": ["me"], "custom_domain": "",
        "disable_confidential": True,
    }  # fmt: skip
    assert yaml.safe_load(container_manifest_of("web", "org-acme", changes)) == {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": "Container",
        "metadata": {"name": "web", "namespace": "org-acme"},
        "spec": {
            "tag": "v2", "variables": [{"name": "A", "value": "1"}], "sshKeys": ["me"],
            "customDomain": None, "disableConfidential": True,
        },
    }  # fmt: skip
