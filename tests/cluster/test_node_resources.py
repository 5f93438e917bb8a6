"""What an enclave may take of its node: disk and processes. A real kubelet enforces it.

The containers attack as their own user and, with the disk, as root with a writable file system.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cloister_crds.kinds.enclave import EnclavePhase
from dev.cluster import Cluster
from dev.cluster.images import push
from tests.support.programs.guest_test_program import (
    EnclaveContainers,
    container_file,
    guest_test_image,
)
from tests.support.programs.operator import Installation, condition_of, operator_lock
from tests.support.programs.web_service import PageServices
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node

DISK_MB = 64
FILL = "sleep 1; dd if=/dev/zero of=/fill bs=1M count=96 2>/dev/null; sync; exec sleep 3600"
LAST_WORD = "dd if=/dev/zero of=/dev/termination-log bs=1M count=1 2>&1; exec sleep 3600"


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    with operator_lock(cluster.name):
        folder = tmp_path_factory.mktemp("resources")
        settings = PageServices(cluster).settings | {"claimAgeSeconds": 1}
        installed = Installation(cluster, folder, settings)
        try:
            installed.prepare()
            installed.create_organization(host={"sizing": {"ephemeralStorageMB": DISK_MB}})
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


@pytest.fixture(scope="module")
def image(cluster: Cluster) -> str:
    return push(guest_test_image(), cluster.registry, "tests/guest-testprogram")


def deploy(installation: Installation, name: str, *containers: Any) -> None:
    installation.repository(f"acme/{name}").release("v1", container_file(containers))
    installation.create_container(name, repo=f"acme/{name}", tag="v1")


def test_a_full_disk_costs_the_enclave_that_filled_it(
    installation: Installation, image: str
) -> None:
    """The kubelet looks every ten seconds; the limit is far below what the node has."""
    target = {"name": "target", "image": image}
    filler = {
        "name": "filler",
        "image": image,
        "entrypoint": ["/bin/sh", "-c", FILL],
        "user": "0:0",
        "read_only": False,
    }
    deploy(installation, "filler", target, filler)

    def lost() -> Any:
        found = [each for each in installation.enclaves() if each.status.reason == "Evicted"]
        return found[0] if found else None

    enclave = until_sync(lost, every=1, what="the eviction of the filler")
    assert enclave.status.phase is EnclavePhase.FAILED
    assert "Container filler exceeded its local ephemeral storage limit" in enclave.status.message
    assert "tmpfs" in enclave.status.message

    def told() -> Any:
        found = installation.container("filler")
        condition = condition_of(found, "Ready") if found is not None else None
        message = condition["message"] if condition is not None else ""
        return message if "ephemeralStorageMB" in message else None

    assert until_sync(told, every=0.2, what="the eviction in the Container's status")
    nodes = json.loads(installation.kubectl("get", "nodes", "-o", "json"))["items"]
    pressure = {
        condition["status"]
        for node in nodes
        for condition in node["status"]["conditions"]
        if condition["type"] == "DiskPressure"
    }
    assert pressure == {"False"}
    installation.kubectl("delete", "ctr/filler", "-n", installation.namespace, "--wait=false")


def test_a_fork_bomb_stops_at_its_limit_and_others_go_on(
    installation: Installation, image: str
) -> None:
    bomb = {
        "name": "bomb",
        "image": image,
        "command": ["multiply", "1000"],
        "user": "1000:1000",
        "pids_limit": 100,
    }
    other = {"name": "other", "image": image, "command": ["multiply", "300"], "user": "1001:1001"}
    talker = {
        "name": "talker",
        "image": image,
        "entrypoint": ["/bin/sh", "-c", LAST_WORD],
        "user": "0:0",
    }
    deploy(installation, "bomb", bomb, other, talker)
    found = installation.wait_for("bomb", "Ready")
    inside = EnclaveContainers(installation, found.status.active_enclave)
    stopped = inside.reported("bomb")
    assert 50 < stopped["Started"] < 100
    assert stopped["Refused"] == "resource temporarily unavailable"
    assert inside.reported("other") == {"Started": 300, "Refused": ""}
    assert "containers[0].pids_limit" not in found.status.unenforced
    # A file of the node that counts as nobody's storage cannot be filled either.
    said = until_sync(lambda: inside.log("talker"), every=0.5, what="the talker's log")
    assert "Read-only file system" in said
