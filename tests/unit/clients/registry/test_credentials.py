"""Credentials of an organization: checked, chosen, written for image pulls."""

import base64
import json
from typing import Any

import pytest

from cloister_clients.registry import (
    Credentials,
    CredentialsInvalid,
    PrivateRegistry,
    credentials_for,
    credentials_from,
    docker_config,
    parse_reference,
    registry_of,
)

KEY = {
    "type": "service_account",
    "project_id": "p",
    "client_email": "a@p.iam.gserviceaccount.com",
    "private_key": "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n",
}
DEEP: list[Any] = []
for _ in range(5_000):
    DEEP = [DEEP]
PAIR = {"username": "user", "token": "secret-token"}


def test_a_pair_becomes_an_entry_of_a_pull_secret() -> None:
    config = json.loads(docker_config([credentials_from(PrivateRegistry.GHCR, PAIR)]))
    assert config == {
        "auths": {
            "ghcr.io": {
                "username": "user",
                "password": "secret-token",
                "auth": base64.b64encode(b"user:secret-token").decode(),
            }
        }
    }


def test_docker_hub_has_the_key_that_kubelet_looks_for() -> None:
    config = json.loads(docker_config([credentials_from(PrivateRegistry.DOCKERHUB, PAIR)]))
    assert list(config["auths"]) == ["https://index.docker.io/v1/"]


@pytest.mark.spec("8.19")
@pytest.mark.parametrize("key", [KEY, json.dumps(KEY), json.dumps(KEY, indent=2) + "\n"])
def test_a_service_account_becomes_entries_for_all_its_hosts(key: Any) -> None:
    made = credentials_from(PrivateRegistry.GCR, {"key": key})
    config = json.loads(docker_config([made]))
    assert sorted(config["auths"]) == ["*.gcr.io", "*.pkg.dev", "gcr.io"]
    entry = config["auths"]["gcr.io"]
    assert entry["username"] == "_json_key"
    assert json.loads(entry["password"]) == KEY
    assert base64.b64decode(entry["auth"]).decode() == f"_json_key:{entry['password']}"


def test_a_pull_secret_is_the_same_for_the_same_credentials() -> None:
    ghcr = credentials_from(PrivateRegistry.GHCR, PAIR)
    hub = credentials_from(PrivateRegistry.DOCKERHUB, PAIR)
    assert docker_config([ghcr, hub]) == docker_config([hub, ghcr])
    assert docker_config([]) == b'{"auths":{}}'
    other = Credentials(("ghcr.io",), "second", "x")
    first = json.loads(docker_config([ghcr, other]))
    assert first["auths"]["ghcr.io"]["username"] == "user"


@pytest.mark.spec("1.2", "8.19")
@pytest.mark.parametrize(
    ("registry", "data", "problem"),
    [
        ("ghcr", {}, "username is missing"),
        ("ghcr", {"username": "u"}, "token is missing"),
        ("dockerhub", {"username": "u", "token": " "}, "token is missing"),
        ("dockerhub", {"username": 1, "token": "t"}, "username is missing"),
        ("ghcr", {"username": "a:b", "token": "t"}, "must not hold a colon"),
        ("ghcr", {"username": "u", "token": "a\nb"}, "control characters"),
        ("ghcr", {"username": "u", "token": "t" * 16385}, "too long"),
        ("ghcr", {"username": "u", "token": "\ud800"}, "halves of characters"),
        (
            "ghcr",
            {**PAIR, "key": "{}"},
            "key is not a field of ghcr credentials; send username and",
        ),
        ("gcr", PAIR, "is not a field of gcr credentials; send key"),
        ("gcr", {}, "key is missing"),
        ("gcr", {"key": "not json"}, "key is not JSON"),
        ("gcr", {"key": "[" * 10000}, "key is not JSON"),
        ("gcr", {"key": "[]"}, "key is missing"),
        ("gcr", {"key": {"type": "authorized_user"}}, "not of a service account"),
        ("gcr", {"key": {**KEY, "private_key": ""}}, 'no "private_key"'),
        ("gcr", {"key": {**KEY, "client_email": None}}, 'no "client_email"'),
        ("gcr", {"key": {**KEY, "x": "y" * 20000}}, "too long"),
        ("gcr", {"key": "x" * 20000}, "too long"),
        ("gcr", {"key": {**KEY, "x": DEEP}}, "too deep"),
    ],
)
def test_what_is_wrong_is_named_without_the_secret(
    registry: str, data: dict[str, Any], problem: str
) -> None:
    with pytest.raises(CredentialsInvalid, match=problem) as caught:
        credentials_from(PrivateRegistry(registry), data)
    assert "secret-token" not in str(caught.value)
    assert "PRIVATE KEY" not in str(caught.value)


@pytest.mark.spec("8.19")
def test_every_wrong_field_is_named_at_once() -> None:
    with pytest.raises(CredentialsInvalid) as caught:
        credentials_from(PrivateRegistry.GHCR, {"key": "{}", "username": "a:b"})
    assert [field for field, _ in caught.value.problems] == ["key", "username", "token"]
    assert all(field in text for field, text in caught.value.problems)


def test_values_may_have_exactly_their_bound() -> None:
    made = credentials_from(PrivateRegistry.GHCR, {"username": "u", "token": "t" * 16384})
    assert len(made.password) == 16384


def test_secrets_do_not_show_in_a_representation() -> None:
    assert "secret-token" not in repr(credentials_from(PrivateRegistry.GHCR, PAIR))


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ("ghcr.io/acme/app", PrivateRegistry.GHCR),
        ("gcr.io/p/app", PrivateRegistry.GCR),
        ("eu.gcr.io/p/app", PrivateRegistry.GCR),
        ("europe-docker.pkg.dev/p/r/app", PrivateRegistry.GCR),
        ("acme/app", PrivateRegistry.DOCKERHUB),
        ("docker.io/acme/app", PrivateRegistry.DOCKERHUB),
        ("quay.io/acme/app", None),
        ("evilghcr.io/acme/app", None),
        ("a.b.gcr.io/p/app", None),
        ("ghcr.io.evil.test/acme/app", None),
        ("ghcr.io:8443/acme/app", None),
    ],
)
def test_credentials_go_to_their_own_registry_alone(
    image: str, want: PrivateRegistry | None
) -> None:
    available = [
        credentials_from(PrivateRegistry.GHCR, PAIR),
        credentials_from(PrivateRegistry.GCR, {"key": KEY}),
        credentials_from(PrivateRegistry.DOCKERHUB, PAIR),
    ]
    reference = parse_reference(image)
    assert registry_of(reference) is want
    chosen = credentials_for(reference, available)
    expected = None if want is None else available[list(PrivateRegistry).index(want)]
    assert chosen is expected
