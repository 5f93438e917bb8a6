"""Each process of the guest is killed in turn: only its part is restarted."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dev.cluster import Cluster
from dev.cluster.images import push
from dev.cluster.layout import Form
from tests.support.programs.guest_test_program import (
    EnclaveContainers,
    container_file,
    guest_test_image,
)
from tests.support.programs.operator import Installation, operator_lock
from tests.support.programs.web_service import PageServices, page_file
from tests.support.waiting import until_sync

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

PARTS = {
    "net": "guest\0net",
    "keep": "guest\0keep",
    "shim": "/cloister-shim\0-config",
    "other": "testprogram\0serve",
}
"""Part -> words of its command line."""


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    if cluster.form is not Form.NODE:
        pytest.skip("processes of the node are killed here, so they have to be on this machine")
    with operator_lock(cluster.name):
        folder = tmp_path_factory.mktemp("restarts")
        settings = PageServices(cluster).settings | {"claimAgeSeconds": 1}
        installed = Installation(cluster, folder, settings)
        try:
            installed.prepare()
            installed.create_organization()
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


def kill(uid: str, words: str) -> None:
    """Kill the process of a Pod that has these words in its command line."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            mine = f"pod{uid}" in (folder / "cgroup").read_text()
            found = mine and words in (folder / "cmdline").read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            continue
        if found:
            os.kill(int(folder.name), signal.SIGKILL)
            return
    raise AssertionError(f"no process of the Pod has {words!r}")


def restarts(inside: EnclaveContainers) -> dict[str, tuple[int, bool]]:
    """Return the restart count of each container, and whether it is ready."""
    status = inside.pod()["status"]
    every = [*status["initContainerStatuses"], *status["containerStatuses"]]
    return {each["name"]: (each["restartCount"], each["ready"]) for each in every}


def test_every_killed_part_is_restarted_without_the_others(
    installation: Installation, cluster: Cluster
) -> None:
    pages = PageServices(cluster)
    image = push(guest_test_image(), cluster.registry, "tests/guest-testprogram")
    page = page_file(pages.web, "here", networks=["inner"], restart="always")
    (web,) = yaml.safe_load(page)["containers"]
    other = {
        "name": "other",
        "image": image,
        "command": ["serve", "", "8080"],
        "networks": ["inner"],
        "restart": "always",
    }
    file = container_file([web, other], networks={"inner": None})
    installation.repository("acme/parts").release("v1", file)
    installation.create_container("parts", repo="acme/parts", tag="v1")
    enclave = installation.wait_for("parts", "Ready", within=240).status.active_enclave
    inside = EnclaveContainers(installation, enclave)
    uid = inside.pod()["metadata"]["uid"]

    def works() -> bool:
        """Fetch the page through the shim, and reach one container from the other by name."""
        seen = pages.fetch_page(installation, "parts")
        order = [
            {"Network": "tcp4", "Address": "web:8080", "Milliseconds": 20_000, "Connect": True}
        ]
        reached = inside.run("other", "/bin/testprogram", "reach", json.dumps(order))
        return seen is not None and seen.body == "here\n" and json.loads(reached) == [True]

    until_sync(works, what="the enclave")
    for part, words in PARTS.items():
        before = restarts(inside)
        kill(uid, words)

        def back(part: str = part, count: int = before[part][0]) -> bool:
            return restarts(inside)[part] == (count + 1, True)

        until_sync(back, within=180, every=0.5, what=f"{part} again")
        until_sync(works, every=0.5, what=f"the enclave after the end of {part}")
        after = restarts(inside)
        assert {n: c for n, (c, _) in after.items() if n != part} == {
            n: c for n, (c, _) in before.items() if n != part
        }
    container = installation.container("parts")
    assert container is not None
    assert container.status.active_enclave == enclave
