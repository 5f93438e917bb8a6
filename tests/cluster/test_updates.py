"""Updates in real Pods: after a failure, while another is in progress, and of all instances.

One container goes through all of it over REST, while `kubectl get --watch` records it.
"""

import contextlib
import subprocess
from collections.abc import Iterator
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


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    folder, pages = tmp_path_factory.mktemp("installation"), PageServices(cluster)
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

    return until_sync(on_its_way, within=120, every=0.1, what=f"an update to {tag}")


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
    assert (record["status"], record["update_status"]) == ("failed", "deploying")
    candidate = candidate_of(
        installation, "v1", UpdatePhase.PENDING, UpdatePhase.DEPLOYING, UpdatePhase.STARTED
    )
    assert enclaves(installation) == {failed, candidate}
    until_sync(lambda: failed not in pods(installation), what="the failed one without its Pod")
    first = serves(installation, "v1")
    assert first == candidate

    seen = installation.folder / "watched.txt"
    with seen.open("w") as file, watched(cluster, installation, file):
        until_sync(seen.read_text, within=60, what="the first line of the watch")
        # A newer request replaces the candidate.
        relaunch(client, path, "v2-slow")
        overtaken = candidate_of(installation, "v2-slow", UpdatePhase.STARTED)
        assert enclaves(installation) == {first, overtaken}
        relaunch(client, path, "v2")
        second = serves(installation, "v2")
        assert second not in {first, overtaken}
        until_sync(lambda: " v2 " in seen.read_text(), within=60, what="the end in the watch")
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
