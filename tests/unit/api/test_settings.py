"""The settings file: every mistake is named by its key."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cloister_api.settings import ApiSettings
from cloister_clients.settings import SettingsError

MINIMAL: dict[str, Any] = {
    "ledger": {"path": "ledger.db", "keyMaterial": "secret/keys.json"},
    "sources": {"kind": "git", "base": "/repositories"},
}


def read(folder: Path, document: Any) -> ApiSettings:
    path = folder / "api.yml"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return ApiSettings.read(path)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    settings = read(tmp_path, {**MINIMAL, "kubeconfig": "kube/config"})
    assert settings.ledger.path == tmp_path / "ledger.db"
    assert settings.ledger.key_material == tmp_path / "secret" / "keys.json"
    assert settings.kubeconfig == tmp_path / "kube" / "config"
    assert settings.listen.port == 8080
    assert read(tmp_path, MINIMAL).kubeconfig is None


def test_links_in_paths_stay(tmp_path: Path) -> None:
    """As in a Pod, where a link leads to the present content of a Secret."""
    (tmp_path / "first").mkdir()
    (tmp_path / "secret").symlink_to("first")
    hook = {"releaseSecretFile": "secret/hook"}
    authority = {"certificate": "secret/ca.pem", "key": "secret/ca.key"}
    certificates = {"issuer": "own", "own": authority}
    stripe = {"secretKeyFile": "secret/s", "containerProducts": ["c"], "tokenProducts": ["t"]}
    tracing = {"endpoint": "http://collector:4318/v1/traces", "headersFile": "secret/headers"}
    given = MINIMAL | {"webhooks": hook, "certificates": certificates, "stripe": stripe}
    given |= {"tracing": tracing}
    settings = read(tmp_path, given)
    linked = tmp_path / "secret"
    assert settings.ledger.key_material == linked / "keys.json"
    assert settings.webhooks.release_secret_file == linked / "hook"
    assert settings.stripe is not None
    assert settings.stripe.secret_key_file == linked / "s"
    assert settings.certificates is not None
    assert settings.certificates.own is not None
    assert settings.certificates.own.key == linked / "ca.key"
    assert settings.tracing is not None
    assert settings.tracing.headers_file == linked / "headers"
    assert settings.tracing.ca_file is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"colour": "red"}, "colour is not a setting"),
        ({"containers_domains": "x"}, "containers_domains is not a setting"),
        ({"ledger": None}, "ledger"),
        (
            {"strictFrom": "0.11.0"},
            r"strictFrom: the API has this from the operator, .* set it there",
        ),
        ({"containersDomain": "c.test", "service": "s"}, "containersDomain, service: the API has"),
        (
            {"sources": {"kind": "git", "base": "/r", "maxFileBytes": 1, "fileNames": ["a.yml"]}},
            r"sources.fileNames, sources.maxFileBytes: the API has this from the operator",
        ),
        ({"registry": {"maxImageBytes": 2**30}}, "registry.maxImageBytes: the API has this from"),
        ({"ledger": {"path": "x"}}, "ledger.keyMaterial is missing"),
        ({"ledger": {"keyMaterial": "k"}}, "ledger: name either path"),
        ({"ledger": {"path": "x", "urlFile": "y", "keyMaterial": "k"}}, "ledger: name either path"),
        ({"usage": {"eventDays": 90}}, r"usage\.eventDays"),
        ({"audit": {"days": 1}}, r"audit\.days"),
        ({"listen": {"port": 70000}}, "listen.port"),
        ({"listen": {"ports": 1}}, "listen.ports is not a setting"),
        ({"sources": {"kind": "svn"}}, "sources.kind"),
        (
            {"sources": {"kind": "git", "base": "https://u:p@h.test"}},
            r"sources: base holds credentials; .* tokenFile",
        ),
        ({"registry": {"plainHttps": []}}, "registry.plainHttps is not a setting"),
        ({"logLevel": "LOUD"}, "logLevel"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        read(tmp_path, {**MINIMAL, **change})
    assert "api.yml" in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "a: [", "5"])
def test_an_invalid_settings_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError):
        read(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        ApiSettings.read(tmp_path / "none.yml")
