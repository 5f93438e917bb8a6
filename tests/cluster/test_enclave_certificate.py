"""An enclave on a real node gets its certificate from a real API, and keeps having one."""

import contextlib
import os
import signal
import time
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from cloister_crds.names import snapshot_name
from cloister_operator.enclave.snapshot import TOKEN_KEY
from dev.cluster import Cluster
from dev.demo.visit import Page
from tests.support.facade import Facade, run_command, start_facade
from tests.support.operator import CONTAINERS_DOMAIN, Installation, turn
from tests.support.pages import PageServices, page_file
from tests.support.signing import signing_request
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node

LIFETIME = 60
"""Seconds that a certificate lives after its signing; with the half of it before that it is renewed
after about 30 s."""
PATIENCE = 240.0


@dataclass
class Api:
    """The API of this module; it may be ended and started again at its address."""

    settings: Path
    """Its settings."""
    running: contextlib.ExitStack
    """Ends it."""
    facade: Facade
    """It."""

    def stop(self) -> None:
        """End it."""
        self.running.close()

    def start(self) -> None:
        """Start it again at its address."""
        self.facade = self.running.enter_context(start_facade(self.settings))

    @property
    def authority(self) -> str:
        """Certificate that clients trust."""
        return httpx.get(f"{self.facade.base}/api/shim/ca", trust_env=False).text

    def ask(self, token: str, *names: str) -> httpx.Response:
        """Ask for a certificate as an enclave does."""
        return httpx.post(
            f"{self.facade.base}/api/shim/cert",
            json={"csr": signing_request(*names)},
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
        )


@pytest.fixture(scope="module")
def pages(cluster: Cluster) -> PageServices:
    return PageServices(cluster)


@pytest.fixture(scope="module")
def api(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give an API that enclaves reach, with an own authority."""
    folder = tmp_path_factory.mktemp("api")
    settings = {
        "containersDomain": CONTAINERS_DOMAIN,
        "kubeconfig": str(cluster.kubeconfig),
        "listen": {"host": cluster.host_address, "port": 0},
        "ledger": {"path": "ledger.db", "keyMaterial": "keys.json"},
        "sources": {"kind": "git", "base": str(folder)},
        "certificates": {
            "issuer": "own",
            "own": {"certificate": "ca.pem", "key": "ca.key", "lifetimeSeconds": LIFETIME},
            "requestsPerHour": 1000,
        },
        "development": True,
    }
    path = folder / "api.yml"
    path.write_text(yaml.safe_dump(settings))
    with contextlib.ExitStack() as running:
        made = Api(path, running, running.enter_context(start_facade(path)))
        port = int(made.facade.base.rpartition(":")[2])
        settings["listen"] = {"host": cluster.host_address, "port": port}
        path.write_text(yaml.safe_dump(settings))
        yield made


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster, pages: PageServices, api: Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("installation")
    signed = {"apiAddress": api.facade.base, "signedCertificates": True}
    with turn(cluster.name):
        installed = Installation(cluster, folder, pages.settings | signed | {"claimAgeSeconds": 1})
        try:
            installed.prepare()
            installed.create_organization()
            installed.repository("acme/web").release("v1.0.0", page_file(pages.web, "one"))
            installed.operator().wait_until_it_leads()
            installed.create_container("web", repo="acme/web", tag="v1.0.0")
            installed.wait_for("web", "Ready", within=PATIENCE)
            yield installed
        finally:
            installed.end()


def token_of(installation: Installation, name: str) -> str:
    """Read an enclave's token as nobody but the operator and its side-cars do."""
    enclave = installation.enclaves(name)[0].metadata.name
    secret = yaml.safe_load(
        installation.kubectl(
            *("get", "secret", snapshot_name(enclave), "-n", installation.namespace, "-oyaml")
        )
    )
    return b64decode(secret["data"][TOKEN_KEY]).decode()


def verified(pages: PageServices, installation: Installation, authority: str) -> Page:
    """Fetch the page with the authority verified."""

    def fetched() -> Page | None:
        return pages.visit(installation, "web", authority=authority)

    page = until_sync(fetched, within=60, what="the page, verified")
    assert page is not None
    assert (page.status, page.body) == (200, "one\n")
    return page


def renewed(pages: PageServices, installation: Installation, authority: str, serial: int) -> Page:
    """Wait until another certificate is shown; every visit before is answered too."""

    def another() -> Page | None:
        page = verified(pages, installation, authority)
        return page if page.serial != serial else None

    page = until_sync(another, within=PATIENCE, every=1, what="another certificate")
    assert page is not None
    return page


def side_car(installation: Installation) -> int:
    """Answer the process id of ``guest certificate`` in the enclave; 0 = none runs."""
    uid = installation.enclaves("web")[0].status.pod_uid
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            groups = (process / "cgroup").read_text().replace("_", "-")
            if words[:2] == [b"/guest", b"certificate"] and b"-spec" in words and uid in groups:
                return int(process.name)
    return 0


def test_the_page_is_verified_with_the_installations_authority(
    installation: Installation, pages: PageServices, api: Api
) -> None:
    page = verified(pages, installation, api.authority)
    container = installation.container("web")
    assert container is not None
    assert page.certificate_names == (container.status.domain,)
    first = installation.enclaves("web")[0]
    assert len(first.spec.token_digest) == 64


def test_a_renewal_and_a_killed_side_car_keep_the_key(
    installation: Installation, pages: PageServices, api: Api
) -> None:
    authority = api.authority
    before = verified(pages, installation, authority)
    pid = side_car(installation)
    assert pid
    os.kill(pid, signal.SIGKILL)
    until_sync(lambda: side_car(installation) not in {0, pid}, within=60, what="another side-car")
    after = renewed(pages, installation, authority, before.serial)
    assert after.key == before.key
    again = renewed(pages, installation, authority, after.serial)
    assert again.key == before.key
    assert len(installation.enclaves("web")) == 1, "no attempt was lost"


def test_an_api_that_is_away_delays_a_renewal(
    installation: Installation, pages: PageServices, api: Api
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


def test_only_a_live_enclave_and_only_its_names(installation: Installation, api: Api) -> None:
    installation.create_container("other", repo="acme/web", tag="v1.0.0")
    other = installation.wait_for("other", "Ready", within=PATIENCE)
    web = installation.container("web")
    assert web is not None
    token = token_of(installation, "other")
    assert api.ask(token, other.status.domain).status_code == 200
    refused = api.ask(token, web.status.domain)
    assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
    installation.kubectl("delete", "ctr", "other", "-n", installation.namespace)
    until_sync(
        lambda: api.ask(token, other.status.domain).status_code == 401,
        within=PATIENCE,
        what="the token of a deleted enclave to be refused",
    )


def test_a_start_without_the_api_says_so_and_goes_on_when_it_is_back(
    installation: Installation, api: Api
) -> None:
    api.stop()
    try:
        installation.create_container("late", repo="acme/web", tag="v1.0.0")

        def told() -> bool:
            found = installation.enclaves("late")
            message = found[0].status.message if found else ""
            assert "is not reached" in message, message
            return True

        until_sync(told, within=PATIENCE, what="the reason in the Enclave's status")
    finally:
        api.start()
    installation.wait_for("late", "Ready", within=PATIENCE)


def test_the_api_needs_no_more_than_its_settings(api: Api) -> None:
    shown = run_command("ca", "show", "--config", str(api.settings)).stdout
    assert shown == api.authority
