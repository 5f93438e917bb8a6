"""The status of a RegistryCredential: its form, its user, whether the registry refused it."""

import json
from base64 import b64encode
from typing import Any

import pytest

from cloister_clients.registry import (
    Credentials,
    CredentialsInvalid,
    PrivateRegistry,
    credentials_in,
    docker_config,
)
from cloister_crds.kinds import RegistryCredential
from cloister_crds.kinds.organization import Entitlements
from cloister_crds.lifecycle.admission.secrets import pull_credentials
from cloister_crds.lifecycle.state.observed import SecretRefKey
from cloister_operator.reconcile.credentials import CONFIG_KEY, CONFIG_TYPE, check_credential
from tests.support.builders.resources import organization_of

ENTITLED = organization_of(entitlements=Entitlements(private_registries=True))
GHCR = PrivateRegistry.GHCR
GOOD = docker_config([Credentials(("ghcr.io",), "me", "token")])


def credential(*, key: str = CONFIG_KEY) -> RegistryCredential:
    spec = {"registry": "ghcr", "secretRef": {"name": "pull", "key": key}}
    return RegistryCredential.read({"metadata": {"name": "ghcr"}, "spec": spec})


def core(document: bytes = GOOD, *, kind: str = CONFIG_TYPE, key: str = CONFIG_KEY) -> Any:
    return {"type": kind, "metadata": {}, "data": {key: b64encode(document).decode()}}


@pytest.mark.parametrize(
    ("body", "want", "text"),
    [
        (None, "SecretValueMissing", "no core Secret pull"),
        (core(key="other"), "SecretValueMissing", CONFIG_KEY),
        (core(kind="Opaque"), "CredentialsInvalid", CONFIG_TYPE),
        (core(b"no json"), "CredentialsInvalid", "not a docker configuration"),
        (core(b'{"auths": {"gcr.io": {"auth": "YTpi"}}}'), "CredentialsInvalid", "ghcr.io"),
        (core(), "CredentialsUsable", "as me"),
    ],
)
def test_what_is_wrong_with_credentials_is_reported(body: Any, want: str, text: str) -> None:
    judged = check_credential(credential(), ENTITLED, body, expired=False, further={})
    assert (judged.finding.reason, text in judged.finding.message) == (want, True)
    assert "token" not in judged.finding.message
    assert judged.finding.status is (want == "CredentialsUsable")


@pytest.mark.spec("8.16")
def test_refused_credentials_are_reported() -> None:
    judged = check_credential(credential(), ENTITLED, core(), expired=True, further={})
    assert (judged.finding.reason, judged.username) == ("CredentialsExpired", "me")


def test_a_key_that_nodes_do_not_read_is_reported() -> None:
    body = core(key="value")
    judged = check_credential(credential(key="value"), ENTITLED, body, expired=False, further={})
    assert judged.finding.reason == "CredentialsInvalid"


def test_credentials_need_the_entitlement() -> None:
    judged = check_credential(credential(), organization_of(), core(), expired=False, further={})
    assert judged.finding.reason == "EntitlementRequired"
    assert pull_credentials(organization_of(), [credential()]) == ()
    assert pull_credentials(None, [credential()]) == ()
    assert pull_credentials(ENTITLED, [credential()]) == (SecretRefKey("ghcr", "pull", CONFIG_KEY),)


@pytest.mark.parametrize(
    ("registry", "auths", "hosts"),
    [
        (GHCR, {"ghcr.io": {"auth": "bWU6dG9rZW4="}}, ["ghcr.io"]),
        (GHCR, {"https://ghcr.io/v1/": {"username": "me", "password": "token"}}, ["ghcr.io"]),
        (
            PrivateRegistry.DOCKERHUB,
            {"https://index.docker.io/v1/": {"auth": "bWU6dG9rZW4="}},
            ["docker.io"],
        ),
        (
            PrivateRegistry.GCR,
            {
                "*.pkg.dev": {"username": "me", "password": "token"},
                "eu.gcr.io": {"username": "me", "password": "token"},
                "ghcr.io": {"username": "other", "password": "other"},
            },
            ["*.pkg.dev", "eu.gcr.io"],
        ),
        (GHCR, {"registry.corp:5000": {"auth": "bWU6dG9rZW4="}}, ["registry.corp:5000"]),
    ],
)
def test_entries_for_the_registry_are_found(
    registry: PrivateRegistry, auths: dict[str, Any], hosts: list[str]
) -> None:
    document = json.dumps({"auths": auths}).encode()
    found = credentials_in(registry, document, ["registry.corp:5000"])
    assert [host for each in found for host in each.hosts] == hosts
    assert {(each.username, each.password) for each in found} == {("me", "token")}


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b'{"auths": []}',
        b'{"auths": {"ghcr.io": 1}}',
        b'{"auths": {"ghcr.io": {"auth": "%%"}}}',
        b'{"auths": {"ghcr.io": {"username": "a"}}}',
    ],
)
def test_a_document_without_credentials_is_refused(document: bytes) -> None:
    with pytest.raises(CredentialsInvalid):
        credentials_in(GHCR, document)
