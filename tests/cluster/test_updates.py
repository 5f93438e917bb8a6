"""Updates in real Pods: after a failure, while another is in progress, and of all instances.

One container goes through all of it over REST, while `kubectl get --watch` records it. Another one
shows by its page that the release that serves stays unless an action names another one; each cell
of the manual's table is in `tests/api/operator/test_release_cells.py`.
"""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import httpx
import pytest

from cloister_crds.kinds import Container
from cloister_crds.kinds.container import ContainerPhase, UpdatePhase
from dev.cluster import Cluster
from tests.support.programs.operator import Installation, condition_of, operator_lock
from tests.support.programs.operator_facade import facade_of
from tests.support.programs.web_service import PageServices, page_file
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node

REPO = "acme/updates"
NEVER = {"test": ["CMD", "false"], "interval": "1s", "start_period": "1h"}
"""Health check of a release that is never ready, and never fails."""
LATER = 1_800_000_000
"""When a later release is published, in seconds."""


@pytest.fixture(scope="module")
def pages(cluster: Cluster) -> PageServices:
    return PageServices(cluster)


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster, pages: PageServices, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("installation")
    releases: dict[str, dict[str, Any]] = {
        "v0-bad": {"command": ["false"]},
        "v1": {},
        "v2-slow": {"healthcheck": NEVER},
        "v2": {},
        "v3": {},
    }
    with operator_lock(cluster.name):
        installed = Installation(cluster, folder, pages.settings | {"claimAgeSeconds": 1})
        try:
            installed.prepare()
            installed.create_organization()
            repository = installed.repository(REPO)
            for tag, keys in releases.items():
                repository.release(tag, page_file(pages.web, tag, **keys))
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


@pytest.fixture(scope="module")
def client(installation: Installation) -> Iterator[httpx.Client]:
    with facade_of(installation) as given:
        yield given


def create(client: httpx.Client, installation: Installation, name: str) -> str:
    """Create a container of the failing release, and return its path."""
    body = {"name": name, "repo": REPO, "tag": "v0-bad", "host_name": installation.host}
    response = client.post("/api/containers", json=body)
    assert response.status_code == 201, response.text
    return str(response.headers["location"])


def relaunch(client: httpx.Client, path: str, tag: str) -> dict[str, Any]:
    response = client.post(f"{path}/relaunch", json={"tag": tag})
    assert response.status_code == 200, response.text
    record: dict[str, Any] = response.json()
    return record


def present(installation: Installation) -> Container:
    container = installation.container("web")
    assert container is not None
    return container


def enclaves(installation: Installation) -> set[str]:
    return {each.metadata.name for each in installation.enclaves("web")}


def pods(installation: Installation) -> set[str]:
    return {each["metadata"]["name"] for each in installation.objects("pods")}


def serves(installation: Installation, tag: str) -> str:
    """Wait until only that release serves, and return its Enclave."""

    def alone() -> str:
        container = present(installation)
        ready = condition_of(container, "Ready")
        status = container.status
        settled = ready is not None and ready["reason"] == "Serving" and status.current_tag == tag
        only = {status.active_enclave} == enclaves(installation) == pods(installation)
        return status.active_enclave if settled and only else ""

    return until_sync(alone, within=180, every=0.3, what=f"{tag} alone")


def candidate_of(installation: Installation, tag: str, *phases: UpdatePhase) -> str:
    """Wait until an update is in progress, and return the name of its Enclave."""

    def on_its_way() -> str:
        update = present(installation).status.update
        fits = update is not None and update.tag == tag and update.status in phases
        return update.enclave if update is not None and fits else ""

    return until_sync(on_its_way, every=0.1, what=f"an update to {tag}")


@contextlib.contextmanager
def watched(cluster: Cluster, installation: Installation, file: IO[str]) -> Iterator[None]:
    """Record each change of the Container in a file with kubectl."""
    program = [str(cluster.bin("kubectl")), f"--kubeconfig={cluster.kubeconfig}"]
    arguments = ["get", "ctr", "web", "--watch", "--no-headers", "-n", installation.namespace]
    process = subprocess.Popen([*program, *arguments], stdout=file, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.lifecycle("newer-request", "relaunch-of-failed", "update-of-all")
def test_updates_in_sequence_and_of_all_instances(
    cluster: Cluster, installation: Installation, client: httpx.Client
) -> None:
    path = create(client, installation, "web")
    assert present(installation).status.phase is not ContainerPhase.READY
    installation.wait_for("web", "Stalled")
    until_sync(lambda: client.get(path).json()["status"] == "failed", what="the failure over REST")
    (failed,) = enclaves(installation)

    # A relaunch after a failure: the failed Enclave stays, without Pod, until its successor serves.
    record = relaunch(client, path, "v1")
    assert (record["status"], record["update_status"]) == ("deploying", "deploying")
    candidate = candidate_of(
        installation, "v1", UpdatePhase.PENDING, UpdatePhase.DEPLOYING, UpdatePhase.STARTED
    )
    assert enclaves(installation) == {failed, candidate}
    until_sync(lambda: failed not in pods(installation), what="the failed one without its Pod")
    first = serves(installation, "v1")
    assert first == candidate

    seen = installation.folder / "watched.txt"
    with seen.open("w") as file, watched(cluster, installation, file):
        until_sync(seen.read_text, what="the first line of the watch")
        # A newer request replaces the candidate.
        relaunch(client, path, "v2-slow")
        overtaken = candidate_of(installation, "v2-slow", UpdatePhase.STARTED)
        assert enclaves(installation) == {first, overtaken}
        relaunch(client, path, "v2")
        second = serves(installation, "v2")
        assert second not in {first, overtaken}
        until_sync(lambda: " v2 " in seen.read_text(), what="the end in the watch")
    rows = [line.split() for line in seen.read_text().splitlines()]
    assert {row[1] for row in rows} == {"ready"}, "a gap was shown"
    tags = [row[2] for row in rows]
    assert tags == sorted(tags), "what serves went back"
    assert set(tags) == {"v1", "v2"}, "what never served was shown"

    # All instances of the repository, of which one does not run.
    stopped = stopped_instance(installation)
    until_sync(
        lambda: reported(client) == {"web": "ready", stopped: "stopped"}, what="both over REST"
    )
    (record,) = client.get("/api/deployments").json()
    response = client.post(f"/api/deployments/{record['id']}/update", json={"tag": "v3"})
    results = {each["name"]: each["status"] for each in response.json()["results"]}
    assert results == {"web": "updating", stopped: "skipped"}, response.text
    serves(installation, "v3")
    other = installation.container(stopped)
    assert other is not None
    assert other.status.phase is ContainerPhase.STOPPED
    assert other.spec.tag == "v1"


def reported(client: httpx.Client) -> dict[str, str]:
    """Return the status of each container over REST; empty = an update is in progress."""
    listed = client.get("/api/containers").json()
    return {each["name"]: each["status"] for each in listed if "update_status" not in each}


def stopped_instance(installation: Installation) -> str:
    """Create another instance of the repository, stopped; return its name."""
    installation.create_container("idle", repo=REPO, tag="v1", state="Stopped")
    installation.wait_for("idle", "Ready", reason="Stopped")
    return "idle"


def greeting_file(image: str, tag: str, **keys: Any) -> bytes:
    """Write a file whose page has the release, a variable and a secret."""
    page = f'mkdir -p /tmp/w && echo "{tag} $GREETING $TOKEN" > /tmp/w/index.html'
    command = ["sh", "-c", f"{page} && exec httpd -f -p 8080 -h /tmp/w"]
    given = {"command": command, "env": ["GREETING"], "secrets": ["TOKEN"], **keys}
    return page_file(image, tag, **given)


@dataclass
class KeptContainer:
    """A container whose page tells what serves."""

    installation: Installation
    """The operator's side."""
    pages: PageServices
    """Requests to it."""
    client: httpx.Client
    """The REST interface."""
    path: str = ""
    """Its path."""

    @property
    def present(self) -> Container:
        """The container as it is now."""
        found = self.installation.container("kept")
        assert found is not None
        return found

    def create(self) -> None:
        """Create it, with a variable and a secret."""
        secret = {"name": "TOKEN", "value": "secret"}
        assert self.client.post("/api/secrets", json=secret).status_code == 201
        body = {"name": "kept", "repo": "acme/kept", "tag": "v1", "secrets": ["TOKEN"]}
        more = {"variables": {"GREETING": "hello"}, "host_name": self.installation.host}
        created = self.client.post("/api/containers", json=body | more)
        assert created.status_code == 201, created.text
        self.path = created.headers["location"]

    def act(self, action: str, **change: Any) -> None:
        """Call an action on the container as it is now."""
        seen = {"X-Consistency-Token": self.present.metadata.resource_version}
        response = self.client.post(f"{self.path}/{action}", json=change, headers=seen)
        assert response.status_code == 200, response.text

    def patch(self, **spec: Any) -> None:
        """Change the manifest."""
        where = ("ctr/kept", "-n", self.installation.namespace, "--type=merge")
        self.installation.kubectl("patch", *where, "-p", json.dumps({"spec": spec}))

    def page(self) -> str:
        """Return what serves; empty = nothing does."""
        found = self.pages.fetch_page(self.installation, "kept")
        return found.body.strip() if found is not None else ""

    def shows(self, page: str, *, other_than: str = "") -> str:
        """Wait until one enclave alone serves that page, and return its name."""

        def alone() -> str:
            there = {each.metadata.name for each in self.installation.enclaves("kept")}
            serves = self.present.status.active_enclave
            fits = there == {serves} != {other_than} and self.page() == page
            return serves if fits else ""

        return until_sync(alone, every=0.3, what=page)

    def update(self, status: UpdatePhase) -> None:
        """Wait for the status of an update."""

        def reached() -> bool:
            found = self.present.status.update
            return found is not None and found.status is status

        until_sync(reached, every=0.2, what=f"an update that is {status}")


@pytest.mark.spec("22.9")
def test_what_serves_stays_the_release_until_another_is_named(
    installation: Installation, pages: PageServices, client: httpx.Client
) -> None:
    repository = installation.repository("acme/kept")
    commit = repository.release("v1", greeting_file(pages.web, "v1"))
    repository.release("v2-bad", greeting_file(pages.web, "v2-bad", command=["false"]))
    slow = repository.release("v2-slow", greeting_file(pages.web, "v2-slow", healthcheck=NEVER))
    kept, first = KeptContainer(installation, pages, client), "v1 hello secret"
    kept.create()
    served = kept.shows(first)

    # A failed update; a relaunch that names no tag is of what serves, with what it had.
    kept.act("relaunch", tag="v2-bad", variables={"GREETING": "never"})
    kept.update(UpdatePhase.FAILED)
    assert kept.page() == first
    kept.act("relaunch")
    kept.shows(first, other_than=served)

    # A stop during an update, by manifest: the start brings back what served.
    kept.patch(tag="v2-slow", commit=slow, variables=[])
    kept.update(UpdatePhase.STARTED)
    assert kept.page() == first
    kept.patch(state="Stopped")
    stopped = installation.wait_for("kept", "Ready", reason="Stopped")
    assert stopped.status.requested_tag == "v1"
    assert not any(name.startswith("kept") for name in pods(installation))
    kept.patch(state="Running")
    served = kept.shows(first)
    ready = condition_of(kept.present, "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("False", "UpdateEnded")
    kept.patch(tag="v1", commit=commit, variables=[{"name": "GREETING", "value": "hello"}])
    installation.wait_for("kept", "Ready", reason="Serving")
    assert kept.shows(first) == served

    # An automatic update keeps the rest, and is the present release when it ends.
    repository.release("v3", greeting_file(pages.web, "v3"), when=LATER)
    kept.act("auto-update", auto_update=True)
    served = kept.shows("v3 hello secret")
    kept.act("auto-update", auto_update=False)
    status = installation.wait_for("kept", "Ready", reason="Serving").status
    assert (status.requested_tag, status.active_enclave) == ("v3", served)
    assert kept.present.spec.tag == "v3"
