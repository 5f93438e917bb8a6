"""One container over REST in real Pods: staged, discarded, promoted, renamed and replaced.

The operator is killed during the update. The custom domain is verified at a real
authoritative name server.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from cloister_crds.kinds import Container
from cloister_crds.names import preview_service_name, service_name
from dev.cluster import Cluster
from dev.demo.https_client import fetch_page
from tests.support.faults.crashing_operators import QUICK_LEASE
from tests.support.programs.operator import CONTAINERS_DOMAIN, Installation, manifest, operator_lock
from tests.support.programs.operator_facade import facade_of
from tests.support.programs.web_service import PageServices, page_file
from tests.support.servers.nameserver import NameServer, serve_zone
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node

REPO = "acme/staged"
ZONE = "customer.test"
HOST = f"api.{ZONE}"


@dataclass
class StagedContainer:
    """An operator, a facade, and one container."""

    installation: Installation
    """The installation of the operator."""
    client: httpx.Client
    """A client of the facade with an admin key."""
    path: str = ""
    """Path of the container."""
    name: str = "staged"
    """Object name of the Container."""

    def post(self, action: str, **body: Any) -> httpx.Response:
        """Call an action of the container as it is now."""
        response = self.client.post(f"{self.path}/{action}", json=body, headers=self.seen)
        assert response.status_code in {200, 204}, response.text
        return response

    @property
    def seen(self) -> dict[str, str]:
        """The header by which the facade waits for the operator's writes so far."""
        return {"X-Consistency-Token": self.container.metadata.resource_version}

    def record(self) -> dict[str, Any]:
        """Read the container over REST as it is now."""
        response = self.client.get(self.path, headers=self.seen)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    @property
    def container(self) -> Container:
        """The Container as it is."""
        found = self.installation.container(self.name)
        assert found is not None
        return found

    def page(self, host: str, *, preview: bool = False) -> str:
        """Fetch the page through a Service; empty = no response."""
        name = preview_service_name(self.name) if preview else service_name(self.name)
        addresses = {
            each["metadata"]["name"]: each["spec"]["clusterIP"]
            for each in self.installation.objects("services")
        }
        try:
            return fetch_page(addresses[name], 443, host, "/").body.strip()
        except (KeyError, OSError):
            return ""

    def served(self, host: str, text: str) -> None:
        """Wait until a page is served under a host name that is the container's, and no other."""
        container = self.installation.wait_for(self.name, "Ready", reason="Serving")
        assert container.status.domain == host
        until_sync(lambda: self.page(host) == text, what=f"{text} at {host}")
        record = self.record()
        assert (record["status"], record["domain"]) == ("ready", host)

    def claims(self) -> dict[str, str]:
        """Return the claims of the organization: host name -> holder."""
        everyone = self.installation.objects("hostnameclaims.cloister.dev", every=True)
        holders = {each["metadata"]["name"]: each["spec"]["holder"] for each in everyone}
        place = self.installation.namespace
        return {host: each["name"] for host, each in holders.items() if each["namespace"] == place}

    def staged(self) -> str:
        """Wait until the update waits for promotion, and return its revision."""
        update = self.installation.wait_for(
            self.name, "Ready", reason="AwaitingPromotion"
        ).status.update
        assert update is not None
        assert update.status == "ready"
        return update.revision


@pytest.fixture(scope="module")
def zone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    with serve_zone(tmp_path_factory.mktemp("knot"), ZONE) as served:
        yield served


@pytest.fixture(scope="module")
def stage(
    cluster: Cluster, zone: NameServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StagedContainer]:
    folder: Path = tmp_path_factory.mktemp("installation")
    (folder / "key").write_bytes(bytes(range(32)))
    domains = {
        "target": "dns.example.test",
        "installationKeyFile": str(folder / "key"),
        "checkSeconds": 1,
        "dns": {"resolvers": [zone.address], "allowPrivate": [zone.address]},
    }
    pages = PageServices(cluster)
    settings = {**pages.settings, "claimAgeSeconds": 1, "lease": QUICK_LEASE, "domains": domains}
    with operator_lock(cluster.name):
        installed = Installation(cluster, folder, settings)
        try:
            installed.prepare()
            installed.create_organization()
            repository = installed.repository(REPO)
            repository.release("v1.0.0", page_file(pages.web, "one"))
            repository.release("v1.1.0", page_file(pages.web, "two"))
            installed.operator().wait_until_it_leads()
            with facade_of(installed, domainSuffixes=[ZONE]) as client:
                yield StagedContainer(installed, client)
        finally:
            installed.end()


def create(stage: StagedContainer, **more: Any) -> str:
    """Create the container over REST, and return its path."""
    body = {
        "name": "staged",
        "repo": REPO,
        "tag": "v1.0.0",
        "host_name": stage.installation.host,
        **more,
    }
    response = stage.client.post("/api/containers", json=body)
    assert response.status_code == 201, response.text
    return str(response.headers["location"])


@pytest.mark.spec("22.3")
@pytest.mark.lifecycle(
    "accept",
    "cancel",
    "create",
    "killed-in-staged-update",
    "relaunch",
    "spec-put-back",
    "staged",
    "waits-for-accept",
)
def test_an_update_is_staged_discarded_and_promoted(stage: StagedContainer) -> None:
    domain = f"staged.{stage.installation.slug}.{CONTAINERS_DOMAIN}"
    stage.path = create(stage, staging=True)
    stage.served(domain, "one")
    first = stage.container.status.active_enclave
    stage.post("relaunch", tag="v1.1.0")
    until_sync(lambda: stage.container.status.candidate, every=0.1, what="a candidate")
    candidate = stage.container.status.candidate
    stage.installation.kill_operator()
    stage.installation.operator().wait_until_it_leads()
    discarded = stage.staged()
    status = stage.container.status
    assert (status.active_enclave, status.candidate) == (first, candidate)
    assert status.update is not None
    preview = f"staged.preview.{stage.installation.slug}.{CONTAINERS_DOMAIN}"
    assert status.update.preview == preview
    assert stage.page(domain) == "one"
    until_sync(lambda: stage.page(preview, preview=True) == "two", what="the preview's page")
    assert stage.record()["update_status"] == "ready"

    stage.post("update/cancel")
    stage.served(domain, "one")

    def discarded_alone() -> bool:
        left = [each.metadata.name for each in stage.installation.enclaves("staged")]
        return left == [first] and stage.page(preview, preview=True) == ""

    until_sync(discarded_alone, what="the end of the discarded update")

    promote = json.dumps({"spec": {"promote": discarded}})
    where = ("ctr/staged", "-n", stage.installation.namespace)
    stage.installation.kubectl("patch", *where, "--type=merge", "-p", promote)
    stage.post("relaunch", tag="v1.1.0")
    assert stage.staged() != discarded, "a promotion of before would fit"
    assert stage.container.status.active_enclave == first
    assert stage.page(domain) == "one"
    accepted = stage.post("update/accept").json()
    assert accepted["current_tag"] == "v1.1.0"
    stage.served(domain, "two")


@pytest.mark.spec("21.6")
@pytest.mark.lifecycle("domain")
def test_debug_and_the_domain_are_changed_and_reverted(
    stage: StagedContainer, zone: NameServer
) -> None:
    slug = stage.installation.slug
    production = f"staged.{slug}.{CONTAINERS_DOMAIN}"
    debug = f"staged.debug.{slug}.{CONTAINERS_DOMAIN}"
    stage.post("relaunch", debug=True, staging=False)
    stage.served(debug, "two")
    assert stage.record()["debug"] is True
    until_sync(lambda: stage.claims() == {debug: "staged"}, what="the debug name alone")

    verified(stage.installation, zone)

    def known() -> bool:
        return [each["verified"] for each in stage.client.get("/api/domains").json()] == [True]

    until_sync(known, what="a domain that the facade sees verified")
    stage.post("relaunch", debug=False, custom_domain=HOST, staging=False)
    stage.served(HOST, "two")
    assert stage.record()["internal_domain"] == production
    assert stage.page(production) == "two"
    until_sync(lambda: stage.claims() == {HOST: "staged"}, what="the domain's claim")

    stage.post("relaunch", custom_domain="", staging=False)
    stage.served(production, "two")
    until_sync(lambda: not stage.claims(), what="the release of the domain")


def verified(installation: Installation, zone: NameServer) -> None:
    """Add the custom domain, create its records, and wait until it is verified."""
    installation.apply(manifest("Domain", "api", {"domain": HOST}, installation.namespace))

    def status() -> dict[str, Any]:
        (found,) = installation.objects("domains.cloister.dev")
        reported: dict[str, Any] = found.get("status", {})
        return reported

    until_sync(lambda: status().get("records"), what="the records to create")
    records = status()["records"]
    zone.put(records["txtName"], "TXT", f'"{records["txtValue"]}"')
    zone.put(HOST, "CNAME", f"{records['cnameTarget']}.")
    until_sync(lambda: status().get("verified"), what="a verified domain")


@pytest.mark.lifecycle("replaces")
def test_another_container_replaces_it_under_the_same_name(stage: StagedContainer) -> None:
    domain = f"staged.{stage.installation.slug}.{CONTAINERS_DOMAIN}"
    old_path = stage.path
    old = old_path.rsplit("/", 1)[-1]
    stage.path, stage.name = create(stage, replace_container_id=old), "staged.2"
    assert not stage.claims(), "the old one still serves"
    stage.served(domain, "one")
    assert stage.claims() == {domain: "staged.2"}

    def gone() -> bool:
        return stage.client.get(old_path).status_code == 404

    until_sync(gone, what="the end of the old container")
    until_sync(lambda: len(stage.installation.objects("pods")) == 1, what="one Pod alone")
    assert stage.page(domain) == "one"
