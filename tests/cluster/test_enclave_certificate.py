"""An enclave on a real node gets its certificate from a real API, and renews it."""

import contextlib
import hashlib
import json
import os
import secrets
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cloister_clients.clock import utc_now
from cloister_crds.lifecycle.state.conditions import condition
from cloister_operator.enclave import paths
from dev.cluster import Cluster
from dev.demo.https_client import Page
from tests.support.builders.signing_requests import signing_request
from tests.support.cluster.accounts import account_kubeconfig
from tests.support.programs.attestation import bound_key, report_data, report_of
from tests.support.programs.facade import Facade, run_command, start_facade
from tests.support.programs.operator import (
    CONTAINERS_DOMAIN,
    Installation,
    condition_of,
    operator_lock,
)
from tests.support.programs.published_settings import publish
from tests.support.programs.web_service import PageServices, page_file
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node

LIFETIME = 60
"""Seconds that a certificate lives after its signing; with the half of it before that it is renewed
after about 30 s."""
PATIENCE = 240.0


@dataclass
class RestartableApi:
    """The API of this module, which can be restarted at its address."""

    settings: Path
    """Its settings."""
    running: contextlib.ExitStack
    """Stops it."""
    facade: Facade
    """The running API."""

    def stop(self) -> None:
        """Stop it."""
        self.running.close()

    def start(self) -> None:
        """Restart it at its address."""
        self.facade = self.running.enter_context(start_facade(self.settings))

    @property
    def authority(self) -> str:
        """Certificate that clients trust."""
        return httpx.get(f"{self.facade.base}/api/shim/ca", timeout=60, trust_env=False).text

    def request(self, token: str, *names: str) -> httpx.Response:
        """Request a certificate as an enclave does."""
        return httpx.post(
            f"{self.facade.base}/api/shim/cert",
            json={"csr": signing_request(*names)},
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
            trust_env=False,
        )


@pytest.fixture(scope="module")
def pages(cluster: Cluster) -> PageServices:
    return PageServices(cluster)


@pytest.fixture(scope="module")
def api(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartableApi]:
    """Provide an API that enclaves reach, with its own authority."""
    folder = tmp_path_factory.mktemp("api")
    settings = {
        "kubeconfig": str(account_kubeconfig(cluster, "api", folder)),
        "listen": {"host": cluster.host_address, "port": 0},
        "ledger": {"path": "ledger.db", "keyMaterial": "keys.json"},
        "sources": {"kind": "git", "base": str(folder)},
        "certificates": {
            "issuer": "own",
            "own": {"certificate": "ca.pem", "key": "ca.key", "lifetimeSeconds": LIFETIME},
            "requestsPerHour": 1000,
        },
        "development": True,
        "utilization": {"everySeconds": 3},
    }
    publish(cluster, CONTAINERS_DOMAIN, metering=True)
    path = folder / "api.yml"
    path.write_text(yaml.safe_dump(settings))
    with contextlib.ExitStack() as running:
        made = RestartableApi(path, running, running.enter_context(start_facade(path)))
        port = int(made.facade.base.rpartition(":")[2])
        settings["listen"] = {"host": cluster.host_address, "port": port}
        path.write_text(yaml.safe_dump(settings))
        yield made


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster,
    pages: PageServices,
    api: RestartableApi,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("installation")
    signed = {"apiAddress": api.facade.base, "signedCertificates": True, "metering": True}
    with operator_lock(cluster.name):
        installed = Installation(cluster, folder, pages.settings | signed | {"claimAgeSeconds": 1})
        try:
            installed.prepare()
            installed.create_organization()
            installed.repository("acme/web").release("v1.0.0", page_file(pages.web, "one"))
            own = page_file(pages.web, "own", shim={"tls-mode": "self-signed"})
            installed.repository("acme/own").release("v1.0.0", own)
            installed.operator().wait_until_it_leads()
            installed.create_container("web", repo="acme/web", tag="v1.0.0")
            installed.wait_for("web", "Ready", within=PATIENCE)
            yield installed
        finally:
            installed.end()


def token_of(installation: Installation, name: str) -> str:
    """Read an enclave's token as its sidecar does, which only root of the node can as well."""
    return Path(f"/proc/{sidecar(installation, name)}/root/{paths.TOKEN}/token").read_text()


def verified(pages: PageServices, installation: Installation, authority: str) -> Page:
    """Fetch the page with a verified certificate."""

    def fetched() -> Page | None:
        return pages.fetch_page(installation, "web", authority=authority)

    page = until_sync(fetched, what="the page, verified")
    assert page is not None
    assert (page.status, page.body) == (200, "one\n")
    return page


def renewed(pages: PageServices, installation: Installation, authority: str, serial: int) -> Page:
    """Wait until another certificate is presented; every request until then must succeed."""

    def another() -> Page | None:
        page = verified(pages, installation, authority)
        return page if page.serial != serial else None

    page = until_sync(another, within=PATIENCE, every=1, what="another certificate")
    assert page is not None
    return page


def sidecar(installation: Installation, name: str = "web") -> int:
    """Return the process id of ``guest certificate`` in an enclave; 0 = none runs."""
    uid = installation.enclaves(name)[0].status.pod_uid
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            groups = (process / "cgroup").read_text().replace("_", "-")
            if words[:2] == [b"/guest", b"certificate"] and b"-spec" in words and uid in groups:
                return int(process.name)
    return 0


def test_the_certificate_is_verified_with_the_installations_authority(
    installation: Installation, pages: PageServices, api: RestartableApi
) -> None:
    page = verified(pages, installation, api.authority)
    container = installation.container("web")
    assert container is not None
    assert page.certificate_names == (container.status.domain,)
    first = installation.enclaves("web")[0]
    assert first.spec.signed_certificate


def test_an_expired_certificate_is_reported_without_the_api(
    installation: Installation, pages: PageServices, api: RestartableApi
) -> None:
    authority = api.authority
    serial = verified(pages, installation, authority).serial
    api.stop()
    container = installation.wait_for("web", "Reconciling", reason="CertificateExpired", within=180)
    ready, valid = condition_of(container, "Ready"), condition_of(container, "CertificateValid")
    assert ready is not None
    assert valid is not None
    assert (ready["status"], valid["status"]) == ("False", "False")
    assert "it expired at " in ready["message"]
    assert "connection refused" in ready["message"]
    assert condition(installation.enclaves("web")[0].status.conditions, "CertificateValid")
    events = installation.objects("events.events.k8s.io")
    (event,) = (each for each in events if each["reason"] == "CertificateExpired")
    assert (event["type"], event["regarding"]["kind"]) == ("Warning", "Container")
    api.start()
    installation.wait_for("web", "Ready", within=PATIENCE)
    assert verified(pages, installation, authority).serial != serial
    (enclave,) = installation.enclaves("web")
    assert condition(enclave.status.conditions, "CertificateValid") is None


def attested(pages: PageServices, installation: Installation, name: str) -> tuple[Page, str]:
    """Fetch the evidence of an enclave with a nonce, and check all but the key.

    Returns
    -------
    tuple[Page, str]
        The response, with the key of its connection, and the fingerprint of the bound key.
    """
    nonce = secrets.token_hex(32)
    path = f"/.well-known/cloister-attestation?nonce={nonce}"
    page = until_sync(lambda: pages.fetch_page(installation, name, path), what="evidence")
    assert page is not None
    assert page.status == 200, page.body
    document = json.loads(page.body)
    assert document["challenge"]["nonce"] == nonce
    assert report_of(document)["report_data"] == report_data(document, bytes.fromhex(nonce))
    return page, bound_key(document)


def stages(pages: PageServices, installation: Installation, name: str) -> dict[str, Any]:
    """Fetch the boot stages of an enclave."""
    page = pages.fetch_page(installation, name, "/.well-known/cloister-boot-stages")
    assert page is not None
    return {each["name"]: each for each in json.loads(page.body)["stages"]}


def test_the_evidence_binds_the_served_tls_key(
    installation: Installation, pages: PageServices
) -> None:
    page, bound = attested(pages, installation, "web")
    assert bound == hashlib.sha256(page.key).hexdigest()
    again, same = attested(pages, installation, "web")
    assert (again.key, same) == (page.key, bound)
    assert again.body != page.body


def test_key_and_certificate_are_boot_stages(
    installation: Installation, pages: PageServices
) -> None:
    reported = stages(pages, installation, "web")
    assert (reported["identity"]["status"], reported["certificate"]["status"]) == ("ok", "ok")
    # The key is created at once; the certificate comes from the API.
    times = [reported[each]["duration_ns"] for each in ("identity", "certificate")]
    assert times == sorted(times)
    assert times[0] > 0


def test_a_file_may_require_a_self_signed_certificate(
    installation: Installation, pages: PageServices, api: RestartableApi
) -> None:
    installation.create_container("own", repo="acme/own", tag="v1.0.0")
    container = installation.wait_for("own", "Ready", within=PATIENCE)
    page, bound = attested(pages, installation, "own")
    assert page.certificate_names == (container.status.domain,)
    assert "Caddy Local Authority" in page.issuer
    assert bound == hashlib.sha256(page.key).hexdigest(), "the key that the shim made is bound"
    assert pages.fetch_page(installation, "own", authority=api.authority) is None
    pods = installation.objects("pods")
    pod = next(each for each in pods if each["metadata"]["name"] == container.status.active_enclave)
    ours = [each["name"] for each in pod["spec"]["containers"]]
    assert "agent" in ours
    assert "certificate" not in ours
    reported = stages(pages, installation, "own")
    assert (reported["identity"]["status"], reported["certificate"]["status"]) == (
        "skipped",
        "skipped",
    )
    installation.kubectl("delete", "ctr", "own", "-n", installation.namespace, "--wait=false")


def test_a_certificate_renewal_and_a_killed_sidecar_keep_the_key(
    installation: Installation, pages: PageServices, api: RestartableApi
) -> None:
    authority = api.authority
    before = verified(pages, installation, authority)
    pid = until_sync(lambda: sidecar(installation), within=120, what="the sidecar")
    os.kill(pid, signal.SIGKILL)
    until_sync(lambda: sidecar(installation) not in {0, pid}, within=120, what="another sidecar")
    after = renewed(pages, installation, authority, before.serial)
    assert after.key == before.key
    again = renewed(pages, installation, authority, after.serial)
    assert again.key == before.key
    assert len(installation.enclaves("web")) == 1, "no attempt was lost"


def test_an_unavailable_api_delays_a_certificate_renewal(
    installation: Installation, pages: PageServices, api: RestartableApi
) -> None:
    authority = api.authority
    before = renewed(
        pages, installation, authority, verified(pages, installation, authority).serial
    )
    api.stop()
    gone = time.monotonic()

    def due() -> bool:
        # The renewal is due half a lifetime after the signing; the page is served meanwhile.
        assert verified(pages, installation, authority).serial == before.serial
        return time.monotonic() - gone > LIFETIME / 2

    try:
        until_sync(due, within=LIFETIME, every=1, what="the time of the renewal")
    finally:
        api.start()
    assert renewed(pages, installation, authority, before.serial).key == before.key


@pytest.mark.spec("6.15")
def test_the_serving_pod_is_metered(installation: Installation, api: RestartableApi) -> None:
    """metrics-server reports the Pod's usage; the series is the container's."""
    member = '{"spec":{"members":[{"user":"ada@example.test","role":"Admin"}]}}'
    installation.kubectl("patch", "org", installation.slug, "--type=merge", "-p", member)
    key = run_command(
        *("admin-key", "create", "--organization", installation.slug, "--name", "test"),
        *("--user", "ada@example.test", "--config", str(api.settings)),
    ).stdout.strip()
    container = installation.container("web")
    assert container is not None
    address = f"{api.facade.base}/api/containers/{container.metadata.uid}/metrics?time=5m"

    def measured() -> list[dict[str, float]]:
        headers = {"Authorization": f"Bearer {key}"}
        response = httpx.get(address, headers=headers, timeout=60, trust_env=False)
        assert response.status_code == 200, response.text
        points = response.json()["data_points"]
        assert len(points) == 60
        # Memory may be 0 in a first reading.
        return [
            point for point in points if point["cpu_util"] is not None and point["cpu_mem_util"]
        ]

    points = until_sync(measured, within=PATIENCE, every=1, what="utilization of the enclave")
    for point in points:
        assert 0 <= point["cpu_util"] <= 110
        assert 0 < point["cpu_mem_util"] <= 100
        assert point["cpu_mem_total"] > 0


def test_the_token_of_an_enclave_is_good_for_its_names_and_its_key_while_it_runs(
    installation: Installation, api: RestartableApi
) -> None:
    installation.create_container("other", repo="acme/web", tag="v1.0.0")
    other = installation.wait_for("other", "Ready", within=PATIENCE)
    web = installation.container("web")
    assert web is not None
    token = token_of(installation, "other")
    # Who reads the token of a real enclave, whose sidecar has the key, gets nothing for another.
    second = api.request(token, other.status.domain)
    assert (second.status_code, second.json()["code"]) == (403, "FORBIDDEN")
    assert "bound to the key" in second.json()["error"]
    refused = api.request(token, web.status.domain)
    assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
    (enclave,) = installation.enclaves("other")
    begin = enclave.status.promoted_at
    assert begin is not None
    # Times in status are whole seconds: less than one is not run time.
    until_sync(
        lambda: utc_now() > begin + timedelta(seconds=3), within=PATIENCE, what="some run time"
    )
    installation.kubectl("delete", "ctr", "other", "-n", installation.namespace)
    until_sync(
        lambda: api.request(token, other.status.domain).status_code == 401,
        within=PATIENCE,
        what="the token of a deleted enclave to be refused",
    )
    until_sync(
        lambda: not installation.enclaves("other"), within=PATIENCE, what="the end of the enclave"
    )
    days = ("--since", "2020-01-01", "--until", "2120-01-01", "--config", str(api.settings))
    lines = run_command("ledger", "runtime", "--organization", installation.slug, *days).stdout
    (reported,) = (one for one in map(json.loads, lines.splitlines()) if one["name"] == "other")
    assert 0 < reported["seconds"] < PATIENCE * 3, "its run time was written before it was let go"


def test_a_start_without_the_api_reports_it_and_continues_when_it_is_back(
    installation: Installation, api: RestartableApi
) -> None:
    api.stop()
    try:
        installation.create_container("late", repo="acme/web", tag="v1.0.0")

        def reported() -> bool:
            found = installation.enclaves("late")
            message = found[0].status.message if found else ""
            assert "cannot be reached" in message, message
            return True

        until_sync(reported, within=PATIENCE, what="the reason in the Enclave's status")
    finally:
        api.start()
    installation.wait_for("late", "Ready", within=PATIENCE)


def test_the_api_needs_only_its_settings(api: RestartableApi) -> None:
    shown = run_command("ca", "show", "--config", str(api.settings)).stdout
    assert shown == api.authority
