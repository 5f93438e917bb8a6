"""What a token says of itself, and what of a TokenReview counts."""

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister_api.auth.pod_tokens import PodIdentity, read_pod_token, reviewed_identity
from cloister_crds.names import token_audience

UID = "00000000-0000-0000-0000-000000000001"
POD = PodIdentity("org-acme", "web-a-1", "p")
CLAIMS: dict[str, Any] = {
    "aud": [token_audience(UID)],
    "exp": 1_800_000_000,
    "iss": "https://kubernetes.default.svc",
    "kubernetes.io": {
        "namespace": "org-acme",
        "node": {"name": "n", "uid": "n"},
        "pod": {"name": "web-a-1", "uid": "p"},
        "serviceaccount": {"name": "default", "uid": "s"},
    },
    "sub": "system:serviceaccount:org-acme:default",
}
EXTRA = {
    "authentication.kubernetes.io/pod-name": ["web-a-1"],
    "authentication.kubernetes.io/pod-uid": ["p"],
}
USER = {"username": "system:serviceaccount:org-acme:default", "extra": EXTRA}
STATUS = {"authenticated": True, "audiences": [token_audience(UID)], "user": USER}


def token_of(payload: bytes) -> str:
    return f"e30.{urlsafe_b64encode(payload).decode().rstrip('=')}.AAAA"


def test_the_token_of_a_pod_says_whose_it_is() -> None:
    said = read_pod_token(token_of(json.dumps(CLAIMS).encode()))
    assert said is not None
    assert (said.pod, said.expires_at) == (POD, 1_800_000_000)
    assert said.is_for(UID)
    assert not said.is_for(UID[:-1])
    single = read_pod_token(token_of(json.dumps(CLAIMS | {"aud": token_audience(UID)}).encode()))
    assert single is not None
    assert single.is_for(UID)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "..",
        "e30.e30.AAAA",
        "é.é.é",
        f"{token_of(json.dumps(CLAIMS).encode())}.more",
        token_of(json.dumps(CLAIMS).encode() + b" " * 9000),
        token_of(b"[" * 5000),
        token_of(b"\xff\xfe"),
        token_of(json.dumps({**CLAIMS, "exp": "soon"}).encode()),
        token_of(json.dumps({**CLAIMS, "kubernetes.io": {"namespace": "org-acme"}}).encode()),
    ],
)
def test_anything_else_is_not_the_token_of_a_pod(token: str) -> None:
    assert read_pod_token(token) is None


@given(st.text())
def test_no_text_fails(text: str) -> None:
    assert read_pod_token(text) is None


@given(st.binary(), st.dictionaries(st.sampled_from(sorted(CLAIMS)), st.none() | st.text()))
def test_no_payload_fails(payload: bytes, changed: dict[str, Any]) -> None:
    read_pod_token(token_of(payload))
    said = read_pod_token(token_of(json.dumps(CLAIMS | changed).encode()))
    assert said is None or said.pod == POD


def test_a_review_confirms_the_pod() -> None:
    assert reviewed_identity(STATUS, token_audience(UID)) == POD


@pytest.mark.spec("26.1")
@pytest.mark.parametrize(
    "changed",
    [
        {"authenticated": False},
        # A server that knows no audiences names none, and has not compared them.
        {"audiences": None},
        {"audiences": [token_audience("another")]},
        {"user": {**USER, "username": "system:serviceaccount:org-acme:another"}},
        {"user": {**USER, "username": "system:node:default"}},
        {"user": {**USER, "username": "system:serviceaccount:org-acme:default:more"}},
        {"user": {**USER, "extra": None}},
        {"user": {**USER, "extra": {**EXTRA, "authentication.kubernetes.io/pod-uid": []}}},
        {"user": None},
    ],
)
def test_a_review_that_does_not_confirm_a_pod_is_a_refusal(changed: dict[str, Any]) -> None:
    assert reviewed_identity(STATUS | changed, token_audience(UID)) is None
