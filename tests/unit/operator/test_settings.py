"""The operator's settings for API keys in enclaves, and for the gateway."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cloister_clients.settings import SettingsError
from cloister_crds.installation import InstallationSettings
from cloister_crds.lifecycle.state.observed import Gateway
from cloister_crds.names import RepositoryNames
from cloister_operator.enclave.tenant import (
    API_ROLE,
    DEFAULT_ACCOUNTS,
    OPERATOR_ROLE,
    build_role_bindings,
)
from cloister_operator.settings import OperatorSettings, read_settings

DIGEST = "sha256:" + "0" * 64
LEAST = {
    "containersDomain": "containers.example.com",
    "shimImage": f"registry.example/shim@{DIGEST}",
    "guestImage": f"registry.example/guest@{DIGEST}",
    "sources": {"kind": "git", "base": "/srv/git"},
}


def settings(folder: Path, **more: Any) -> OperatorSettings:
    """Read settings from a file."""
    path = folder / "operator.yaml"
    path.write_text(yaml.safe_dump(LEAST | more))
    return read_settings(path)


@pytest.mark.parametrize("more", [{}, {"apiAddress": "https://api.example.com"}])
def test_the_api_address_of_enclaves(tmp_path: Path, more: dict[str, Any]) -> None:
    assert settings(tmp_path, **more).decision().api_known is bool(more)


def test_how_long_enclaves_cache_api_keys(tmp_path: Path) -> None:
    usual = settings(tmp_path).build()
    assert (usual.key_cache_seconds, usual.key_outage_seconds) == (1, 30)
    other = settings(tmp_path, keyCacheSeconds=0, keyOutageSeconds=5).build()
    assert (other.key_cache_seconds, other.key_outage_seconds) == (0, 5)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"containersDomain": "Containers_Example"},
            "containersDomain: String should match pattern",
        ),
        ({"keyCacheSeconds": 61}, "less than or equal to 60"),
        ({"keyOutageSeconds": -1}, "greater than or equal to 0"),
        ({"gateway": {}}, "gateway.name is missing"),
        ({"gateway": {"name": "A_b"}}, "gateway.name: String should match pattern"),
        ({"gateway": {"name": "a", "namespace": "a.b"}}, "gateway.namespace: String should match"),
        ({"drainSeconds": 3601}, "less than or equal to 3600"),
        ({"tracing": {}}, "tracing.endpoint is missing"),
        (
            {"tracing": {"endpoint": "http://c/v1/traces", "followCallers": True}},
            "is not a setting",
        ),
        ({"imagePullSecrets": ["A_b"]}, r"imagePullSecrets\.0: String should match pattern"),
    ],
)
def test_an_unusable_setting_is_named(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        settings(tmp_path, **more)


def test_what_the_facade_has_from_the_operator(tmp_path: Path) -> None:
    sources = {"kind": "git", "base": "/repositories", "maxFileBytes": 1000}
    registry = {"maxImageBytes": 2_000_000}
    made = settings(
        tmp_path, strictFrom="0.11.0", sources=sources, registry=registry, metering=True
    )
    manifest = made.installation().manifest("somewhere")
    published = InstallationSettings.read({**manifest, "data": {**manifest["data"], "new": "x"}})
    assert published == made.installation()
    assert (published.strict_from, published.max_file_bytes) == ("0.11.0", 1000)
    assert made.decision().file_limit == 1000
    assert made.decision().image_limit == published.max_image_bytes == 2_000_000
    assert published.repositories == made.decision().repositories == RepositoryNames()
    later = manifest["data"]["settings.json"].replace("{", '{"later": 1,', 1)
    assert InstallationSettings.read({"data": {"settings.json": later}}) == published


@pytest.mark.spec("7.1")
@pytest.mark.parametrize("kind", ["github", "gitea"])
def test_forges_compare_names_without_case(tmp_path: Path, kind: str) -> None:
    made = settings(tmp_path, sources={"kind": kind, "base": "https://forge.example.org"})
    assert made.installation().repositories == RepositoryNames(ignore_case=True)
    assert made.decision().repositories == RepositoryNames(ignore_case=True)


def test_which_gateway_routes_are_attached_to(tmp_path: Path) -> None:
    assert settings(tmp_path).decision().gateway is None
    least = settings(tmp_path, gateway={"name": "public"}).decision().gateway
    assert least == Gateway("public", "cloister-system")
    full = {"name": "public", "namespace": "edge", "listener": "tls"}
    assert settings(tmp_path, gateway=full).decision().gateway == Gateway("public", "edge", "tls")


def test_how_long_enclaves_drain(tmp_path: Path) -> None:
    assert settings(tmp_path).decision().drain.total_seconds() == 10
    assert not settings(tmp_path, drainSeconds=0).decision().drain


def test_the_roles_are_bound_to_the_accounts_of_the_settings(tmp_path: Path) -> None:
    def bound(**given: Any) -> dict[str, str]:
        made = settings(tmp_path, **given)
        bindings = build_role_bindings(
            "acme",
            "org-acme",
            operator_namespace=made.operator_namespace,
            accounts=made.accounts.by_role(),
        )
        return {each["roleRef"]["name"]: each["subjects"][0]["name"] for each in bindings}

    assert bound() == DEFAULT_ACCOUNTS
    other = bound(accounts={"operator": "robot", "api": "facade"})
    assert [*other.items()] == [(OPERATOR_ROLE, "robot"), (API_ROLE, "facade")]
