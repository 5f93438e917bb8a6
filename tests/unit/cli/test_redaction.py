"""Secrets go out of texts and objects, by place and by content; what helps stays."""

import base64
import json
from typing import Any

import pytest

from cloister_cli.bundle import REDACTED, Redactor, secret_values

KEY = "tk_" + "a1B2" * 9


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"key {KEY} was refused", "key [redacted] was refused"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer [redacted]"),
        ("postgresql://ada:pass@host/db", "postgresql://[redacted]@host/db"),
        ("ghp_" + "x" * 36, REDACTED),
        ("whsec_" + "x" * 32, REDACTED),
        ("-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----\nx", "[redacted]\nx"),
        ("-----BEGIN PRIVATE KEY-----\ncut off", REDACTED),
        ("https://host/path?token=abcdef&x=1", "https://host/path?token=[redacted]&x=1"),
        ("POST 201 acme ada.b+c@mail.example.test key 7", "POST 201 acme [redacted] key 7"),
        ("ghcr.io/acme/web@sha256:ab", "ghcr.io/acme/web@sha256:ab"),
        ("ssh://git@git.example.com/a", "ssh://git@git.example.com/a"),
        ("Container org-acme/web: TagNotFound", "Container org-acme/web: TagNotFound"),
    ],
)
def test_what_looks_like_a_credential(text: str, left: str) -> None:
    assert Redactor().text(text) == left


@pytest.mark.parametrize("value", ["swordfish", 'with "quotes"\nand lines', "ümläut-ß"])
def test_a_known_value_goes_in_every_form(value: str) -> None:
    redactor = Redactor([value, "no"])
    assert redactor.text(f"a {value} z, no more") == "a [redacted] z, no more"
    assert redactor.text(json.dumps({"a": value})) == '{"a": "[redacted]"}'
    encoded = base64.b64encode(value.encode()).decode()
    assert encoded.rstrip("=") not in redactor.text(f"value: {encoded}")


def test_values_of_a_secret_include_what_is_inside_of_them() -> None:
    document = json.dumps({"auths": {"ghcr.io": {"password": "inner-password"}}})
    encoded = base64.b64encode(document.encode()).decode()
    assert "inner-password" in secret_values({"data": {".dockerconfigjson": encoded}})


def test_an_object_keeps_what_helps() -> None:
    body: dict[str, Any] = {
        "metadata": {
            "name": "web",
            "managedFields": [{"manager": "kubectl"}],
            "labels": {"cloister.dev/container": "web", "team": "x"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        "spec": {
            "tag": "v1",
            "variables": [{"name": "NAME", "value": "value"}],
            "containers": [{"command": ["a"], "env": [{"name": "A", "value": "b"}]}],
            "members": [{"user": "ada@example.test", "role": "Admin"}],
        },
    }
    assert Redactor().body(body) == {
        "metadata": {
            "name": "web",
            "labels": {"cloister.dev/container": "web", REDACTED: "1 others"},
            "annotations": {REDACTED: "1 others"},
        },
        "spec": {
            "tag": "v1",
            "variables": [{"name": "NAME", "value": REDACTED}],
            "containers": [{"command": REDACTED, "env": [{"name": "A", "value": REDACTED}]}],
            "members": [{"user": REDACTED, "role": REDACTED}],
        },
    }
