"""Containers of the file behave on a real node as under a container engine, isolated."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cloister_crds.kinds.container import ContainerPhase
from dev.cluster import Cluster
from dev.cluster.images import push
from tests.support.programs.guest_test_program import (
    EnclaveContainers,
    container_file,
    guest_test_image,
)
from tests.support.programs.operator import Installation, condition_of, operator_lock
from tests.support.programs.web_service import PageServices
from tests.support.servers.git import Repository
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node

USR1 = 10
HOLD = '{"metadata":{"finalizers":["tests.cloister.dev/hold"]}}'


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    with operator_lock(cluster.name):
        folder = tmp_path_factory.mktemp("containers")
        settings = PageServices(cluster).settings | {"claimAgeSeconds": 1}
        installed = Installation(cluster, folder, settings)
        try:
            installed.prepare()
            installed.create_organization()
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


@pytest.fixture(scope="module")
def image(cluster: Cluster) -> str:
    return push(
        guest_test_image(user="app", working_dir="/home"),
        cluster.registry,
        "tests/guest-testprogram-app",
    )


def release(installation: Installation, name: str, tag: str, *containers: Any, **more: Any) -> None:
    installation.repository(f"acme/{name}").release(tag, container_file(containers, **more))


def deploy(
    installation: Installation, name: str, *containers: Any, **more: Any
) -> EnclaveContainers:
    release(installation, name, "v1", *containers, **more)
    installation.create_container(name, repo=f"acme/{name}", tag="v1")
    found = installation.wait_for(name, "Ready", within=240)
    isolated = condition_of(found, "NetworkIsolated")
    assert isolated is not None
    assert isolated["status"] == "True"
    return EnclaveContainers(installation, found.status.active_enclave)


def test_a_program_runs_as_its_image_specifies(installation: Installation, image: str) -> None:
    """Entrypoint and command, user and groups by name, home, and nothing of the Pod."""
    target = {"name": "target", "image": image}
    tmpfs = {"/tmp": "size=1m,mode=0750,uid=1234,exec"}
    looking = {"name": "Looking_1", "image": image, "command": ["inspect"], "tmpfs": tmpfs}
    inside = deploy(installation, "inspect", target, looking)
    seen = inside.reported("looking-1")
    status = seen["Status"]
    assert (seen["Pid"], seen["Arguments"]) == (1, ["/bin/testprogram", "inspect"])
    assert status["Uid"].split() == ["1234"] * 4
    assert status["Gid"].split() == ["1235"] * 4
    assert set(status["Groups"].split()) == {"1300"}
    assert (seen["Directory"], seen["Variables"]["HOME"]) == ("/home", "/home/app")
    assert {status[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp_filters"]) == ("1", "2")
    assert (seen["Hostname"], seen["Devices"], seen["LowPort"]) == ("looking-1", ["lo"], True)
    assert inside.pod()["status"]["podIP"] not in seen["Hosts"]
    mounts = [line for line in seen["Mounts"].splitlines() if " /tmp " in line]
    assert any("size=1024k,mode=750" in line and "noexec" not in line for line in mounts), mounts


@pytest.mark.parametrize(
    ("name", "keys", "reported"),
    [
        ("seven", {"command": ["exit", "7"]}, {"exit code 7"}),
        ("missing", {"entrypoint": ["/not-there"]}, {"exit code 127", '"/not-there": not found'}),
        ("folder", {"entrypoint": ["/home"]}, {"exit code 126", '"/home": not executable'}),
    ],
)
def test_exit_codes_are_those_of_the_program(
    installation: Installation, image: str, name: str, keys: dict[str, Any], reported: set[str]
) -> None:
    """When a program cannot be started, the agent reports the cause and the kubelet the code."""
    release(installation, name, "v1", {"name": "web", "image": image, **keys})
    installation.create_container(name, repo=f"acme/{name}", tag="v1")
    found = installation.wait_for(name, "Stalled", within=240)
    stalled = condition_of(found, "Stalled")
    assert stalled is not None
    assert any(words in stalled["message"] for words in reported), stalled["message"]


def test_the_stop_signal_of_the_file_ends_the_program(
    installation: Installation, image: str
) -> None:
    """The program exits with a code for the signal, well before the grace period ends."""
    trap = {
        "name": "trap",
        "image": image,
        "command": ["trap", "/tmp/ready"],
        "tmpfs": {"/tmp": "size=1m"},
        "stop_signal": "SIGUSR1",
        "stop_timeout": 300,
    }
    inside = deploy(installation, "stop", trap)
    until_sync(lambda: inside.run("trap", "cat", "/tmp/ready") == "ready", what="its handler")
    where = ("pod", inside.enclave, "-n", installation.namespace)
    installation.kubectl("patch", *where, "--type=merge", "-p", HOLD)
    try:
        installation.kubectl("delete", *where, "--wait=false")
        ended = until_sync(lambda: inside.termination("trap"), what="the exit of the program")
        assert ended is not None
        assert ended["exitCode"] == 100 + USR1
    finally:
        installation.kubectl(
            "patch", *where, "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
        )


@pytest.mark.spec("43.8")
def test_an_update_that_turns_unhealthy_fails_and_reports_its_cause(
    installation: Installation, image: str
) -> None:
    check = {"interval": "1s", "timeout": "5s", "retries": 2}
    healthy = {"test": ["CMD", "/bin/true"], **check}
    sick = {"test": ["CMD-SHELL", "id -un; echo it hurts; exit 3"], **check}
    web = {"name": "web", "image": image}
    deploy(installation, "sick", {**web, "healthcheck": healthy})
    file = container_file([{**web, "healthcheck": sick}])
    Repository(installation.repositories.path / "acme" / "sick.git").release("v2", file)
    installation.create_container("sick", repo="acme/sick", tag="v2")
    found = installation.wait_for("sick", "Stalled", within=240)
    assert found.status.phase is ContainerPhase.READY
    assert found.status.update is not None
    message = found.status.update.message
    assert "is unhealthy" in message
    assert "it hurts" in message
    assert "app" in message


@pytest.mark.spec("44.7")
def test_names_and_packets_stay_on_shared_networks(installation: Installation, image: str) -> None:
    def on(name: str, *networks: str) -> dict[str, Any]:
        keys = {"networks": list(networks)} if networks else {}
        return {"name": name, "image": image, "command": ["serve", "", "8080"], **keys}

    inside = deploy(
        installation,
        "names",
        on("front", "one"),
        on("back", "one", "two"),
        on("store", "two"),
        on("lonely"),
        networks={"one": None, "two": None},
    )

    def reaches(source: str, target: str, *, within: int) -> bool:
        order = {"Network": "tcp4", "Address": f"{target}:8080", "Milliseconds": within}
        responses: list[bool] = json.loads(
            inside.run(source, "/bin/testprogram", "reach", json.dumps([order]))
        )
        return responses == [True]

    for source, target in (("front", "back"), ("back", "front"), ("back", "store")):
        assert reaches(source, target, within=60_000), f"{source} -> {target}"
    for source, target in (
        ("front", "store"),
        ("store", "front"),
        ("lonely", "back"),
        ("back", "lonely"),
    ):
        assert not reaches(source, target, within=1_500), f"{source} -> {target}"
