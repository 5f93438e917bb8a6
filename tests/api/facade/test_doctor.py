"""``cloister doctor`` on the settings of both programs: what they name responds, or is named."""

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.cluster import Cluster
from tests.support.programs.facade import run_command
from tests.support.servers.registry import Registry
from tests.support.stand_ins.openid import CLIENT, SECRET, openid_stand_in


def diagnose(cluster: Cluster, option: str, path: Path) -> dict[str, tuple[str, str]]:
    """Return level and message of each check."""
    kubeconfig = ("--kubeconfig", str(cluster.kubeconfig))
    done = run_command("doctor", *kubeconfig, option, str(path), "--output", "json", check=False)
    findings = json.loads(done.stdout)["findings"]
    assert done.returncode == any(each["level"] == "fail" for each in findings)
    return {each["check"]: (each["level"], each["message"]) for each in findings}


def operator_settings(folder: Path, image: str, **more: Any) -> Path:
    """Write settings of an operator."""
    usual = {
        "containersDomain": "containers.test",
        "shimImage": image,
        "guestImage": image,
        "sources": {"kind": "git", "base": str(folder)},
    }
    path = folder / "operator.yml"
    path.write_text(yaml.safe_dump({**usual, **more}))
    return path


def test_what_the_operator_names_responds(
    api_cluster: Cluster, facade_registry: tuple[Registry, str], tmp_path: Path
) -> None:
    registry, tagged = facade_registry
    image = f"{registry.host}/team/web@{tagged.rpartition('@')[2]}"
    reach = {"allowPrivate": [registry.host], "plainHttp": [registry.host]}
    found = diagnose(
        api_cluster,
        "--operator-config",
        operator_settings(tmp_path, image, registry=reach),
    )
    for check in ("settings of the operator", "source of releases", "shimImage", "guestImage"):
        assert found[check][0] == "pass", found[check]


def test_what_the_operator_cannot_reach_is_named(
    api_cluster: Cluster, facade_registry: tuple[Registry, str], tmp_path: Path
) -> None:
    registry, _ = facade_registry
    reach = {"allowPrivate": [registry.host], "plainHttp": [registry.host]}
    (tmp_path / "short").write_text("short")
    path = operator_settings(
        tmp_path,
        f"{registry.host}/team/none@sha256:{'0' * 64}",
        guestImage=f"127.0.0.1:1/guest@sha256:{'0' * 64}",
        sources={"kind": "git", "base": str(tmp_path / "gone")},
        registry=reach,
        enclaveNetwork={"resolvers": ["127.0.0.254"]},
        domains={"target": "dns.test", "installationKeyFile": str(tmp_path / "short")},
        gateway={"name": "public"},
        kubeconfig=str(api_cluster.kubeconfig),
    )
    found = diagnose(api_cluster, "--operator-config", path)
    expected = {
        "source of releases": "gone does not exist",
        "shimImage": "is not there",
        "guestImage": "RegistryRefused",
        "resolver 127.0.0.254": "does not respond",
        "custom domains": "holds 5 bytes",
    }
    for check, text in expected.items():
        level, message = found[check]
        assert level == "fail", (check, message)
        assert text in message
    # Other tests may have brought the kinds of the Gateway API; the Gateway is missing anyway.
    assert found["gateway"][0] in {"warn", "fail"}


def test_a_source_that_does_not_respond_is_named(api_cluster: Cluster, tmp_path: Path) -> None:
    host = ["127.0.0.1:1"]
    reach = {"plainHttp": host, "allowPrivate": host}
    nowhere = {"kind": "gitea", "base": "http://127.0.0.1:1", **reach}
    path = operator_settings(tmp_path, f"127.0.0.1:1/a@sha256:{'0' * 64}", sources=nowhere)
    level, message = diagnose(api_cluster, "--operator-config", path)["source of releases"]
    assert level == "fail"
    assert "SourceUnavailable" in message


def test_settings_that_are_wrong_are_named(api_cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yml"
    path.write_text("unknwon: 1\n")
    for program in ("operator", "api"):
        found = diagnose(api_cluster, f"--{program}-config", path)
        level, message = found[f"settings of the {program}"]
        assert level == "fail"
        assert "unknwon" in message


def test_what_the_api_names_can_be_used(
    api_cluster: Cluster, facade_settings: Path, facade: object
) -> None:
    found = diagnose(api_cluster, "--api-config", facade_settings)
    for check in ("settings of the api", "key material", "ledger"):
        assert found[check][0] == "pass", found[check]


NOWHERE = "postgresql://cloister:secret-of-the-ledger@127.0.0.1:1/ledger"


@pytest.mark.parametrize(
    ("changes", "check", "level", "text"),
    [
        ({"keyMaterial": "none.json", "path": "new.db"}, "key material", "fail", "none.json"),
        ({"path": "none.db"}, "ledger", "warn", "does not exist"),
        ({"path": "newer.db"}, "ledger", "fail", "is of a newer version, 9999"),
        ({"path": "empty.db"}, "ledger", "warn", "at migration (none)"),
        ({"urlFile": "url"}, "ledger", "fail", "does not respond"),
    ],
)
def test_what_the_api_cannot_use_is_named(
    api_cluster: Cluster,
    tmp_path: Path,
    changes: Mapping[str, str],
    check: str,
    level: str,
    text: str,
) -> None:
    with sqlite3.connect(tmp_path / "newer.db") as newer:
        newer.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        newer.execute("INSERT INTO alembic_version VALUES ('9999')")
    newer.close()
    (tmp_path / "empty.db").touch()
    (tmp_path / "url").write_text(NOWHERE)
    (tmp_path / "url").chmod(0o600)
    settings = {
        "ledger": {"keyMaterial": "keys.json", **changes},
        "sources": {"kind": "git", "base": str(tmp_path)},
        "certificates": {"issuer": "own", "own": {"certificate": "ca.pem", "key": "ca.key"}},
    }
    path = tmp_path / "api.yml"
    path.write_text(yaml.safe_dump(settings))
    found = diagnose(api_cluster, "--api-config", path)
    assert found[check][0] == level, found
    assert text in found[check][1]
    assert found["issuer of certificates"][0] == "fail"
    assert "secret-of-the-ledger" not in str(found)


def test_the_openid_provider_responds_or_is_named(
    api_cluster: Cluster, facade_settings: Path, tmp_path: Path
) -> None:
    settings = yaml.safe_load(facade_settings.read_text())
    path = facade_settings.parent / f"{tmp_path.name}.yml"
    (tmp_path / "secret").write_text(SECRET)
    with openid_stand_in() as provider:
        right = {
            "name": "Acme SSO",
            "issuer": provider.issuer,
            "clientId": CLIENT,
            "clientSecretFile": str(tmp_path / "secret"),
        }
        for change, level, told in (
            ({}, "pass", "responds and has 1 keys"),
            ({"issuer": f"{provider.issuer}/"}, "fail", "dashboard.oidc.issuer is"),
            ({"clientSecretFile": "/nowhere"}, "fail", "clientSecretFile: /nowhere"),
            ({"caFile": "/nowhere"}, "fail", "caFile: /nowhere"),
        ):
            dashboard = {"address": "http://127.0.0.1:8090", "oidc": {**right, **change}}
            path.write_text(yaml.safe_dump({**settings, "dashboard": dashboard}))
            found = diagnose(api_cluster, "--api-config", path)
            assert found["OpenID provider"][0] == level, change
            assert told in found["OpenID provider"][1]
