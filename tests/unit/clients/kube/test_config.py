"""Kubeconfig files, the Pod's service account, and the sources of tokens."""

import base64
import json
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloister_clients.kube import ConfigError, KubeConfig
from cloister_clients.kube.credentials import (
    CredentialError,
    ExecPlugin,
    StaticToken,
    TokenFile,
    read_credential,
)
from tests.support.builders.certificates import Certificate, certificate

NOW = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("certificate"))


def write(
    path: Path,
    *,
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
) -> Path:
    document = {
        "current-context": "c",
        "clusters": [
            {"name": "k", "cluster": {"server": "https://127.0.0.1:1", **(cluster or {})}}
        ],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [
            {"name": "c", "context": {"cluster": "k", "user": "u", **(context or {})}},
            {"name": "other", "context": {"cluster": "k", "user": "u", "namespace": "two"}},
        ],
    }
    path.write_text(yaml.safe_dump(document))
    return path


async def test_files_are_relative_to_the_kubeconfig(tmp_path: Path, made: Certificate) -> None:
    (tmp_path / "ca.crt").write_bytes(made.file.read_bytes())
    (tmp_path / "token").write_text("secret\n")
    path = write(
        tmp_path / "config",
        cluster={"certificate-authority": "ca.crt", "tls-server-name": "kubernetes"},
        user={"tokenFile": "token", "as": "ada", "as-groups": ["a", "b"]},
        context={"namespace": "one"},
    )
    config = KubeConfig.load(path)
    assert config.server == "https://127.0.0.1:1"
    assert config.namespace == "one"
    assert config.server_name == "kubernetes"
    assert config.impersonate == {"Impersonate-User": ("ada",), "Impersonate-Group": ("a", "b")}
    assert await config.credentials.token() == "secret"
    assert config.tls is not None
    assert config.tls.verify_mode is ssl.CERT_REQUIRED
    assert config.tls.check_hostname
    assert "secret" not in repr(config)
    assert KubeConfig.load(path, "other").namespace == "two"


def test_data_is_in_the_file(tmp_path: Path, made: Certificate) -> None:
    path = write(
        tmp_path / "config",
        cluster={"certificate-authority-data": base64.b64encode(made.file.read_bytes()).decode()},
        user={
            "client-certificate-data": base64.b64encode(made.file.read_bytes()).decode(),
            "client-key-data": base64.b64encode(made.key_file.read_bytes()).decode(),
        },
    )
    config = KubeConfig.from_file(path)
    assert config.tls is not None
    assert len(config.tls.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"cluster": {"insecure-skip-tls-verify": True}}, "insecure-skip-tls-verify is refused"),
        ({"cluster": {"server": ""}}, "has no server"),
        ({"cluster": {"certificate-authority": "none"}}, "No such file"),
        ({"cluster": {"certificate-authority-data": "!"}}, "is not base64"),
        ({"cluster": {"certificate-authority-data": "YQ=="}}, "cannot be used"),
        ({"user": {"username": "a"}}, "user.username is not supported"),
        ({"user": {"auth-provider": {"name": "x"}}}, "user.auth-provider is not supported"),
        ({"user": {"client-certificate-data": "YQ=="}}, "go together"),
        ({"user": {"exec": {"apiVersion": "v0", "command": "a"}}}, "this client speaks"),
        (
            {"user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}},
            "has no command",
        ),
        ({"context": {"user": "nobody"}}, "users has no entry 'nobody'"),
        ({"context": {"cluster": "none"}}, "clusters has no entry 'none'"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, parts: dict[str, Any], words: str) -> None:
    path = write(tmp_path / "config", **parts)
    with pytest.raises(ConfigError, match=words) as caught:
        KubeConfig.load(path)
    assert str(path.parent) in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "a: [", "current-context: x\n", "a: b\n"])
def test_what_is_no_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError):
        KubeConfig.load(path)


def test_missing_kubernetes_configuration_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="no Kubernetes configuration"):
        KubeConfig.load()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="names no existing file"):
        KubeConfig.load()
    path = write(tmp_path / "config")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{path}")
    assert KubeConfig.load().server == "https://127.0.0.1:1"


async def test_a_pod_uses_its_service_account(tmp_path: Path, made: Certificate) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ConfigError, match="not in a Pod"):
        KubeConfig.in_cluster(tmp_path, environ)
    (tmp_path / "token").write_text("t1")
    (tmp_path / "ca.crt").write_bytes(made.file.read_bytes())
    (tmp_path / "namespace").write_text("ours")
    config = KubeConfig.in_cluster(tmp_path, environ)
    assert config.server == "https://[fd00::1]:443"
    assert config.namespace == "ours"
    assert await config.credentials.token() == "t1"


async def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    path, now = tmp_path / "token", [NOW]
    path.write_text("one")
    source = TokenFile(path, clock=lambda: now[0])
    assert await source.token() == "one"
    path.write_text("two")
    assert await source.token() == "one"
    now[0] += timedelta(minutes=2)
    assert await source.token() == "two"
    path.write_text("three")
    source.forget()
    assert await source.token() == "three"
    assert "three" not in repr(source)
    path.write_text(" ")
    source.forget()
    with pytest.raises(CredentialError, match="is empty"):
        await source.token()
    path.unlink()
    with pytest.raises(CredentialError, match="No such file"):
        await source.token()


async def test_a_static_token_stays(tmp_path: Path) -> None:
    source = StaticToken("abc")
    source.forget()
    assert await source.token() == "abc"
    assert "abc" not in repr(source)


def plugin(folder: Path, script: str) -> str:
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def credential(token: str, expires: datetime | None = None) -> str:
    status: dict[str, Any] = {"token": token}
    if expires is not None:
        status["expirationTimestamp"] = expires.isoformat().replace("+00:00", "Z")
    body = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    }
    return json.dumps(body)


async def test_the_token_of_an_exec_plugin_is_cached_until_it_expires(tmp_path: Path) -> None:
    count, now = tmp_path / "count", [NOW]
    answer = credential("from-plugin", NOW + timedelta(minutes=5))
    script = f"echo asked >> {count}; test -n \"$KUBERNETES_EXEC_INFO\" && echo '{answer}'"
    source = ExecPlugin(plugin(tmp_path, script), clock=lambda: now[0])
    assert await source.token() == "from-plugin"
    assert await source.token() == "from-plugin"
    assert len(count.read_text().split()) == 1
    now[0] += timedelta(minutes=5)
    assert await source.token() == "from-plugin"
    assert len(count.read_text().split()) == 2
    source.forget()
    now[0] = NOW
    assert await source.token() == "from-plugin"
    assert len(count.read_text().split()) == 3
    assert "from-plugin" not in repr(source)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo wrong >&2; exit 3", "exited with 3: wrong"),
        ("echo no json", "did not print JSON"),
        ("echo '{}'", "did not print an ExecCredential"),
    ],
)
async def test_a_plugin_that_fails_is_named(tmp_path: Path, script: str, words: str) -> None:
    with pytest.raises(CredentialError, match=words):
        await ExecPlugin(plugin(tmp_path, script)).token()


async def test_a_missing_plugin_gives_its_hint() -> None:
    source = ExecPlugin("/none/such", install_hint="install it from the vendor")
    with pytest.raises(CredentialError, match="install it from the vendor"):
        await source.token()


def test_certificates_of_plugins_are_refused() -> None:
    body = json.loads(credential(""))
    body["status"] = {"clientCertificateData": "x", "clientKeyData": "y"}
    with pytest.raises(CredentialError, match="gave no token"):
        read_credential(json.dumps(body).encode(), body["apiVersion"])
