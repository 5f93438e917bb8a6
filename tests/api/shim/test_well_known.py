"""The shim while the enclave boots, and its well-known paths, with the real agent."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloister_operator.enclave.guest_config.agent import agent_document
from cloister_operator.enclave.guest_config.measurement import unmeasured_document
from tests.support.builders.enclave_plans import SURROUNDINGS, WEB, plan_of
from tests.support.ports import free_port
from tests.support.programs.measured_guest import measured_guest, write_measured
from tests.support.servers.shim import RunningShim, running_shim
from tests.support.waiting import accepts, until_sync

AWAY = "The enclave's agent is starting; ask again in a moment."
PATHS = ("certificate", "containers", "boot-stages", "metrics")


@contextlib.contextmanager
def running_agent(shim: RunningShim) -> Iterator[None]:
    """Run the agent of an enclave whose one container never starts."""
    folder = shim.agent.parent
    places = {"socketDirectory": "report", "serviceDirectory": "service"}
    plan = plan_of(WEB)
    document: dict[str, Any] = agent_document(plan) | {
        name: str(folder / place) for name, place in places.items()
    }
    for place in places.values():
        (folder / place).mkdir()
    file = folder / "config.yml"
    file.write_bytes(b"a file")
    document |= {
        "config": str(file),
        "directory": str(shim.agent),
        "terminationFile": str(folder / "termination"),
        "keeperSocket": "",
        "attestation": None,
        "probes": f"127.0.0.1:{free_port()}",
    }
    told = unmeasured_document(plan, SURROUNDINGS)
    write_measured(folder, {"agent.json": document}, unmeasured=told, config_file=b"a file")
    guest = [str(measured_guest()), "agent"]
    with subprocess.Popen([*guest, "-spec", str(folder / "agent.json")], cwd=folder) as process:
        try:
            until_sync(lambda: accepts(shim.agent / "agent.sock"), within=60, what="the agent")
            yield
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def booting() -> Iterator[RunningShim]:
    with (
        tempfile.TemporaryDirectory(prefix="shim") as folder,
        running_shim(
            Path(folder), booted=False, paths=("/exact",), origins=("https://app.example",)
        ) as shim,
        running_agent(shim),
    ):
        yield shim


@pytest.mark.spec("28.7")
@pytest.mark.parametrize("target", ["/", "/exact", "/not-listed", "/ready", "/.well-known/other"])
def test_while_the_enclave_boots_every_path_returns_the_stages(
    booting: RunningShim, target: str
) -> None:
    response = booting.request(target, method="POST")
    assert response.status == 503
    assert response.header("Content-Type") == "application/json"
    assert response.header("Retry-After") == "1"
    error = response.data["error"]
    assert (error["type"], error["status"]) == ("server_error", "pending")
    stages = {each["name"]: each for each in response.data["boot"]["stages"]}
    assert stages["config"]["status"] == "ok"
    assert stages["containers"]["status"] == "pending"
    assert response.data["boot"]["completed_at"] is None


def test_the_agent_serves_the_well_known_paths(booting: RunningShim) -> None:
    containers = booting.request("/.well-known/cloister-containers?x=1").data["containers"]
    assert [(each["name"], each["created"]) for each in containers] == [("web", False)]
    stages = booting.request("/.well-known/cloister-boot-stages").data
    assert [each["name"] for each in stages["stages"]][-2:] == ["containers", "shim"]
    metrics = booting.request("/.well-known/cloister-metrics").data
    assert metrics["image"] == "acme/web@v1.0.0"
    assert metrics["cpu_mem_total"] == 8
    presented = booting.request("/.well-known/cloister-certificate")
    # The enclave's TLS port is not open here: the agent is what responds, not the container.
    assert (presented.status, presented.data["error"]["type"]) == (503, "server_error")
    gauges = booting.request("/.well-known/metrics")
    assert (gauges.header("Content-Type") or "").startswith("text/plain; version=0.0.4")
    assert b"# TYPE cloister_enclave_cpu_mem_total gauge" in gauges.body
    refused = booting.request("/.well-known/metrics", method="DELETE")
    assert (refused.status, refused.header("Allow")) == (405, "GET, HEAD")


def test_well_known_paths_allow_listed_origins(booting: RunningShim) -> None:
    listed = booting.request("/.well-known/metrics", headers={"Origin": "https://app.example"})
    assert listed.header("Access-Control-Allow-Origin") == "https://app.example"
    other = booting.request("/.well-known/metrics", headers={"Origin": "https://evil.example"})
    assert other.status == 403


def test_requests_are_forwarded_as_soon_as_the_boot_is_complete(booting: RunningShim) -> None:
    """The last test of a booting enclave: a completed boot is never undone."""
    mark = booting.agent / "booted"
    mark.touch()
    assert booting.request("/exact").data["target"] == "/exact"
    mark.unlink()
    assert booting.request("/not-listed").status == 404
    assert booting.request("/.well-known/cloister-containers").status == 200
    # Only the exact paths are the agent's; all others follow the file's paths.
    for target in ("/%2ewell-known/metrics", "/.well-known/metrics/", "/.well-known/x-metrics"):
        assert booting.request(target).status == 404


def test_without_its_agent_a_booted_enclave_keeps_serving(open_shim: RunningShim) -> None:
    for path in PATHS:
        response = open_shim.request(f"/.well-known/cloister-{path}")
        assert (response.status, response.data["error"]["message"]) == (503, AWAY)
    assert open_shim.request("/x").status == 200


def test_without_its_agent_a_booting_enclave_returns_an_error() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="shim") as folder,
        running_shim(Path(folder), booted=False) as shim,
    ):
        response = shim.request("/x")
    assert response.status == 503
    assert response.data["error"]["status"] == "pending"
    assert response.data["boot"] == {"stages": []}
