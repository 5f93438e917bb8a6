"""What a real enclave reports about itself, through the shim's TLS, and failed boots."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from dev.cluster import Cluster
from tests.support.programs.enclave_inspector import EnclaveInspector
from tests.support.programs.operator import Installation, condition_of, operator_lock
from tests.support.programs.web_service import HEALTHCHECK, PageServices, page_file
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node

UNHEALTHY = {
    "test": ["CMD-SHELL", "echo no such table; exit 3"],
    "interval": "1s",
    "timeout": "5s",
    "retries": 2,
}
SICK = "wget -q -O /dev/null http://127.0.0.1:8080/ && test ! -e /tmp/w/sick"
STAGES = (
    "config ok, network ok, identity skipped, cpu-attestation skipped, gpu-attestation skipped, "
    "certificate skipped, secrets skipped, registry-auth skipped, firewall ok, models skipped, "
    "containers ok, shim ok"
)


@pytest.fixture(scope="module")
def pages(cluster: Cluster) -> PageServices:
    return PageServices(cluster)


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster, pages: PageServices, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("installation")
    with operator_lock(cluster.name):
        installed = Installation(cluster, folder, pages.settings | {"claimAgeSeconds": 1})
        try:
            installed.prepare()
            installed.create_organization(host={"networkIsolation": "Container"})
            repository = installed.repository("acme/web")
            check: dict[str, Any] = {**HEALTHCHECK, "test": ["CMD-SHELL", SICK], "retries": 3}
            good = page_file(pages.web, "one", healthcheck=check, restart="always")
            repository.release("v1.0.0", good)
            repository.release("v2.0.0", page_file(pages.web, "two", healthcheck=UNHEALTHY))
            repository.release("v3.0.0", page_file(pages.web, "three", command=["/not/there"]))
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


@pytest.fixture(scope="module")
def inside(installation: Installation, pages: PageServices) -> EnclaveInspector:
    installation.create_container("status", repo="acme/web", tag="v1.0.0")
    installation.wait_for("status", "Ready", within=240)
    view = EnclaveInspector(installation, pages, "status")
    until_sync(lambda: view.container("web") != {}, what="the enclave's own report")
    return view


def test_its_pod_is_complete_when_the_enclave_is(
    inside: EnclaveInspector, installation: Installation
) -> None:
    """What `kubectl get pods`, disruption budgets and monitoring see; times are whole seconds."""

    def became_ready(kind: str) -> datetime | None:
        form = ("-n", installation.namespace, "-o", "json")
        found = json.loads(installation.kubectl("get", kind, inside.enclave, *form))
        ready = [each for each in found["status"]["conditions"] if each["type"] == "Ready"]
        over = [each["lastTransitionTime"] for each in ready if each["status"] == "True"]
        return datetime.fromisoformat(over[0]) if over else None

    pod = until_sync(lambda: became_ready("pod"), what="the Pod's readiness")
    enclave = became_ready("enclave")
    assert pod is not None
    assert enclave is not None
    assert pod - enclave <= timedelta(seconds=1)


@pytest.mark.spec("28.3")
def test_the_container_states_are_served(inside: EnclaveInspector) -> None:
    web = inside.container("web")
    assert (web["declared"], web["created"], web["status"]) == (True, True, "running")
    assert (web["restart_count"], web["restart_policy"], web["exit_code"]) == (0, "always", 0)
    assert "@sha256:" in web["image"]
    assert web["health"]["status"] == "healthy"
    assert web["health"]["last_check_exit_code"] == 0
    runtime = inside.status("web")
    started = datetime.fromisoformat(runtime["state"]["running"]["startedAt"])
    assert abs(datetime.fromisoformat(web["started_at"]) - started) < timedelta(seconds=60)
    if "container_id" in web:
        assert runtime["containerID"].endswith(web["container_id"])
    first = inside.well_known("cloister-containers")["observed_at"]

    def observed_again() -> bool:
        reported = inside.well_known("cloister-containers")
        return bool(reported and reported["observed_at"] > first)

    until_sync(observed_again, what="the next observation")


@pytest.mark.spec("47.2")
def test_every_container_has_the_container_states_as_a_file(inside: EnclaveInspector) -> None:
    text = inside.read("web", "/cloister/container-status.json")
    assert '"name":"web"' in text
    assert inside.read("web", "/cloister/config.yml").startswith("cvm-version")


@pytest.mark.spec("28.4")
def test_the_boot_stages_are_served(inside: EnclaveInspector, installation: Installation) -> None:
    reported = inside.well_known("cloister-boot-stages")
    assert ", ".join(f"{each['name']} {each['status']}" for each in reported["stages"]) == STAGES
    assert reported["completed_at"] > reported["started_at"]
    (web,) = reported["stages"][10]["stages"]
    steps = [(each["name"], each["status"]) for each in web["stages"]]
    assert steps == [("pull", "ok"), ("start", "ok"), ("healthy", "ok")]
    assert all(each["duration_ns"] > 0 for each in web["stages"])
    (enclave,) = installation.enclaves("status")
    shown = ", ".join(f"{each.name} {each.status}" for each in enclave.status.boot_stages)
    assert shown == STAGES


@pytest.mark.spec("28.6")
def test_the_metrics_are_served(inside: EnclaveInspector, installation: Installation) -> None:
    def measured() -> dict[str, Any] | None:
        metrics: dict[str, Any] | None = inside.well_known("cloister-metrics")
        return metrics if metrics and metrics["cpu_util"] is not None else None

    metrics = until_sync(measured, what="two samples")
    assert metrics is not None
    container = installation.container("status")
    assert container is not None
    assert metrics["id"] == container.metadata.uid
    assert metrics["domain"] == container.status.domain
    assert metrics["image"] == "acme/web@v1.0.0"
    assert 0 <= metrics["cpu_util"] <= 110
    assert 0 < metrics["cpu_mem_util"] <= 100
    assert "# TYPE cloister_enclave_cpu_util gauge" in str(inside.well_known("metrics"))


@pytest.mark.spec("43.9")
def test_a_container_that_turns_unhealthy_keeps_running(
    inside: EnclaveInspector, installation: Installation
) -> None:
    namespace, enclave = installation.namespace, inside.enclave
    touch = ("exec", "-n", namespace, enclave, "-c", "web", "--")
    installation.kubectl(*touch, "touch", "/tmp/w/sick")

    def health() -> str:
        return str(inside.container("web").get("health", {}).get("status"))

    until_sync(lambda: health() == "unhealthy", what="the illness")
    assert inside.container("web")["health"]["failing_streak"] >= 3
    container = installation.container("status")
    assert container is not None
    available = condition_of(container, "Available")
    assert available is not None
    assert available["status"] == "True"
    assert inside.enclave == enclave
    installation.kubectl(*touch, "rm", "/tmp/w/sick")
    until_sync(lambda: health() == "healthy", what="health again")


@pytest.mark.lifecycle("first-failed")
@pytest.mark.parametrize(
    ("name", "tag", "reason", "text"),
    [
        ("ill", "v2.0.0", "HealthcheckFailed", "Its last output: no such table"),
        ("empty", "v3.0.0", "BootFailed", '"/not/there": not found'),
    ],
)
def test_a_failed_boot_reports_its_cause(
    installation: Installation, name: str, tag: str, reason: str, text: str
) -> None:
    installation.create_container(name, repo="acme/web", tag=tag)
    container = installation.wait_for(name, "Stalled", within=240)
    stalled = condition_of(container, "Stalled")
    assert stalled is not None
    assert stalled["reason"] == reason
    assert text in stalled["message"]
    (enclave,) = installation.enclaves(name)
    failed = [each for each in enclave.status.boot_stages if each.status == "failed"]
    assert [each.name for each in failed] == ["containers"]
    assert text in failed[0].detail
