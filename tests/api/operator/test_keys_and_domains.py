"""The status of SSHKeys and Domains; DNS is a real authoritative name server."""

import base64
import json
import os
import secrets
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.cluster import Cluster
from tests.support.programs.operator import Installation, file_text, manifest, operator_lock
from tests.support.servers.nameserver import NameServer, serve_zone
from tests.support.waiting import until_sync

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a name server on port 53 needs root")

IMAGE = "registry.invalid/web@sha256:" + "ab" * 32
ZONE = "customer.test"
HOST = f"api.{ZONE}"
BLOB = b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(32)
KEY = f"ssh-ed25519 {base64.b64encode(BLOB).decode()} me@home"


@pytest.fixture(scope="module")
def zone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    with serve_zone(tmp_path_factory.mktemp("knot"), ZONE) as served:
        yield served


@pytest.fixture(scope="module")
def operated(
    api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, zone: NameServer
) -> Iterator[Installation]:
    with operator_lock(api_cluster.name):
        folder: Path = tmp_path_factory.mktemp("installation")
        (folder / "key").write_bytes(secrets.token_bytes(32))
        domains = {
            "target": "dns.example.test",
            "installationKeyFile": str(folder / "key"),
            "checkSeconds": 1,
            "graceSeconds": 12,
            "dns": {"resolvers": [zone.address], "allowPrivate": [zone.address]},
        }
        settings = {"claimAgeSeconds": 1, "domains": domains}
        installation = Installation(api_cluster, folder, settings)
        try:
            installation.prepare()
            installation.create_organization()
            entitled = {"entitlements": {"hostSelection": True, "domainSuffixes": [ZONE]}}
            patch_organization(installation, entitled)
            installation.repository("acme/web").release("v1", file_text(IMAGE))
            installation.operator().wait_until_it_leads()
            yield installation
        finally:
            installation.end()


def patch_organization(installation: Installation, spec: dict[str, Any]) -> None:
    name = f"organizations.cloister.dev/{installation.slug}"
    installation.kubectl("patch", name, "--type=merge", "-p", json.dumps({"spec": spec}))


def ready_of(body: dict[str, Any]) -> dict[str, Any]:
    conditions = body.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Ready"), {"reason": ""})


def claimed(installation: Installation) -> set[str]:
    claims = installation.objects("hostnameclaims.cloister.dev")
    return {each["metadata"]["name"] for each in claims}


def found(installation: Installation, kind: str, name: str) -> dict[str, Any]:
    every = installation.objects(kind)
    return next(each for each in every if each["metadata"]["name"] == name)


def wait_for(installation: Installation, kind: str, name: str, reason: str) -> dict[str, Any]:
    def reported() -> dict[str, Any] | None:
        body = found(installation, kind, name)
        return body if ready_of(body)["reason"] == reason else None

    body = until_sync(reported, within=60, what=f"{reason} of {kind} {name}")
    assert body is not None
    return body


@pytest.mark.spec("8.5")
def test_an_ssh_key_reports_its_type_and_who_names_it(operated: Installation) -> None:
    operated.apply(manifest("SSHKey", "me", {"publicKey": KEY}, operated.namespace))
    body = wait_for(operated, "sshkeys.cloister.dev", "me", "KeyUsable")
    assert body["status"]["keyType"] == "ssh-ed25519"
    operated.create_container(
        "keyed", repo="acme/web", tag="v1", debug=True, sshKeys=["me"], state="Stopped"
    )

    def used() -> bool:
        status = found(operated, "sshkeys.cloister.dev", "me")["status"]
        return bool(status.get("usedBy") == ["keyed"])

    until_sync(used, within=30, what="usedBy of the key")
    damaged = manifest("SSHKey", "cut", {"publicKey": KEY[:40]}, operated.namespace)
    operated.apply(damaged)
    wait_for(operated, "sshkeys.cloister.dev", "cut", "SSHKeyInvalid")


@pytest.mark.spec("5.8")
@pytest.mark.lifecycle("domain")
def test_a_domain_from_its_records_to_its_loss(operated: Installation, zone: NameServer) -> None:
    kind = "domains.cloister.dev"
    operated.create_container("web", repo="acme/web", tag="v9", customDomain=HOST)
    refused = wait_for(operated, "containers.cloister.dev", "web", "DomainNotFound")
    assert HOST in refused["status"]["message"]
    operated.apply(manifest("Domain", "api", {"domain": HOST}, operated.namespace))
    records = wait_for(operated, kind, "api", "DomainNotVerified")["status"]["records"]
    wait_for(operated, "containers.cloister.dev", "web", "DomainNotVerified")
    zone.put(records["txtName"], "TXT", f'"{records["txtValue"]}"')
    zone.put(HOST, "CNAME", f"{records['cnameTarget']}.")
    verified = wait_for(operated, kind, "api", "DomainVerified")["status"]
    assert (verified["verified"], verified["cnameConfigured"]) == (True, True)
    assert verified["usedBy"] == ["web"]

    # The container goes on by itself; that its tag does not exist is the next obstacle.
    wait_for(operated, "containers.cloister.dev", "web", "TagNotFound")
    held = {"holder": {"namespace": operated.namespace, "name": "web"}}
    operated.apply(manifest("HostnameClaim", HOST, held))
    # A pause, by which a name could be kept for ever, holds neither the checks nor the release.
    for each in (f"{kind}/api", "containers.cloister.dev/web"):
        operated.kubectl("annotate", each, "-n", operated.namespace, "cloister.dev/paused=true")
    zone.drop(records["txtName"], "TXT")
    lost = wait_for(operated, kind, "api", "DomainLost")["status"]
    assert (lost.get("verified", False), bool(lost["lostAt"])) == (False, True)
    wait_for(operated, kind, "api", "DomainDropped")
    until_sync(lambda: HOST not in claimed(operated), within=30, what="the release of the name")
    zone.put(records["txtName"], "TXT", f'"{records["txtValue"]}"')
    again = wait_for(operated, kind, "api", "DomainVerified")["status"]
    assert "lostAt" not in again
    patch_organization(operated, {"entitlements": {"domainSuffixes": ["other.test"]}})
    withdrawn = wait_for(operated, kind, "api", "EntitlementRequired")["status"]
    assert (withdrawn.get("verified", False), bool(withdrawn["lostAt"])) == (False, True)
    patch_organization(operated, {"entitlements": {"domainSuffixes": [ZONE]}})


@pytest.mark.spec("8.8")
def test_a_requested_check_of_a_domain_is_handled_at_once(operated: Installation) -> None:
    operated.apply(manifest("Domain", "asked", {"domain": f"asked.{ZONE}"}, operated.namespace))
    wait_for(operated, "domains.cloister.dev", "asked", "DomainNotVerified")
    stamp = uuid.uuid4().hex
    operated.kubectl(
        *("annotate", "domains.cloister.dev/asked", "-n", operated.namespace),
        f"cloister.dev/requested-at={stamp}",
    )

    def answered() -> bool:
        status = found(operated, "domains.cloister.dev", "asked")["status"]
        return bool(status.get("lastHandledRequest") == stamp)

    until_sync(answered, within=30, what="an answer to the request")


def test_a_domain_outside_the_suffix_is_refused(operated: Installation) -> None:
    operated.apply(manifest("Domain", "foreign", {"domain": "a.other.test"}, operated.namespace))
    body = wait_for(operated, "domains.cloister.dev", "foreign", "EntitlementRequired")
    assert f"*.{ZONE}" in str(body["status"]["conditions"])
