"""Each part of a real enclave is killed in turn: only that part is restarted."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from dev.cluster import Cluster
from tests.support.programs.enclave_inspector import EnclaveInspector
from tests.support.programs.operator import Installation, operator_lock
from tests.support.programs.web_service import STOP_TIMEOUT, PageServices, page_file
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node

PARTS = ("keep", "net", "agent", "shim", "web", "side")


@pytest.fixture(scope="module")
def inside(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EnclaveInspector]:
    folder = tmp_path_factory.mktemp("installation")
    pages = PageServices(cluster)
    with operator_lock(cluster.name):
        installed = Installation(cluster, folder, pages.settings | {"claimAgeSeconds": 1})
        try:
            installed.prepare()
            installed.create_organization(host={"networkIsolation": "Container"})
            file: dict[str, Any] = yaml.safe_load(page_file(pages.web, "one", restart="always"))
            (web,) = file["containers"]
            side = {"name": "side", "image": web["image"], "restart": "always"}
            side |= {"stop_timeout": STOP_TIMEOUT}
            file["containers"].append({**side, "command": ["sleep", "100000"]})
            installed.repository("acme/web").release("v1.0.0", yaml.safe_dump(file).encode())
            installed.operator().wait_until_it_leads()
            installed.create_container("killed", repo="acme/web", tag="v1.0.0")
            installed.wait_for("killed", "Ready", within=240)
            yield EnclaveInspector(installed, pages, "killed")
        finally:
            installed.end()


@pytest.mark.parametrize("part", PARTS)
def test_a_killed_part_does_not_restart_the_others(inside: EnclaveInspector, part: str) -> None:
    until_sync(lambda: inside.page() == "one", what="the page before")
    before = {name: inside.status(name)["containerID"] for name in PARTS}
    restarts = {name: inside.container(name)["restart_count"] for name in ("web", "side")}
    enclave, boot = inside.enclave, inside.well_known("cloister-boot-stages")
    inside.kill(part)
    for name in PARTS:
        same = inside.status(name)["containerID"] == before[name]
        assert same is (name != part), f"{name} was restarted when {part} was killed"
    until_sync(lambda: inside.page() == "one", what=f"the page without {part}")

    def reported() -> bool:
        counts = {name: inside.container(name).get("restart_count") for name in restarts}
        running = all(inside.container(name).get("status") == "running" for name in restarts)
        return running and counts == {
            name: count + (name == part) for name, count in restarts.items()
        }

    until_sync(reported, what="the agent's report of the containers")
    assert inside.enclave == enclave
    assert inside.well_known("cloister-boot-stages") == boot, "the boot started again"
