"""Every known container escape, tried from inside of real Pods: all of them fail.

The list is the guest's own (``operator/guest/testdata/escapes.json``); here the kubelet, the
runtime and the Pod are real, and the file was deployed through the whole product.
"""

import json
from collections.abc import Iterator

import pytest

from dev.cluster import Cluster
from dev.cluster.guest import MODULE
from dev.cluster.images import push
from tests.support.programs.guest_test_program import (
    GUEST_PLACES,
    EnclaveContainers,
    container_file,
    guest_test_image,
)
from tests.support.programs.operator import Installation, operator_lock
from tests.support.programs.web_service import PageServices
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node

ESCAPES = ["escapes", *GUEST_PLACES]
WANTED: dict[str, str] = json.loads((MODULE / "testdata" / "escapes.json").read_text())
SPACE = {"tmpfs": {"/tmp": "size=4m"}}
ROOT = {"user": "0:0", "read_only": False, **SPACE}
USER = {"user": "1000:1000", **SPACE}


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    pages = PageServices(cluster)
    with operator_lock(cluster.name):
        folder = tmp_path_factory.mktemp("escapes")
        installed = Installation(cluster, folder, pages.settings | {"claimAgeSeconds": 1})
        try:
            installed.prepare()
            installed.create_organization()
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


@pytest.fixture(scope="module")
def image(cluster: Cluster) -> str:
    return push(guest_test_image(), cluster.registry, "tests/guest-testprogram")


def deploy(installation: Installation, name: str, file: bytes) -> EnclaveContainers:
    installation.repository(f"acme/{name}").release("v1", file)
    installation.create_container(name, repo=f"acme/{name}", tag="v1")
    container = installation.wait_for(name, "Ready", within=240)
    return EnclaveContainers(installation, container.status.active_enclave)


def check_escapes(responses: dict[str, str]) -> None:
    wrong = {
        door: response
        for door, response in responses.items()
        if response not in WANTED.get(door, "").split("|")
    }
    assert not wrong
    assert responses.keys() == WANTED.keys()


@pytest.mark.attack("escape")
def test_every_escape_fails_for_the_program(installation: Installation, image: str) -> None:
    """As root with a writable file system, and as another user."""
    target = {"name": "target", "image": image}
    for who, rights in (("root", ROOT), ("user", USER)):
        tried = {"name": "tried", "image": image, "command": ESCAPES, **rights}
        inside = deploy(installation, f"escapes-{who}", container_file([target, tried]))
        check_escapes(inside.reported("tried"))


@pytest.mark.attack("escape-from-health-check")
def test_every_escape_fails_for_a_hostile_health_check(
    installation: Installation, image: str
) -> None:
    program = f"/bin/testprogram {' '.join(ESCAPES)}"
    script = f"{program} > /tmp/answers.new && mv /tmp/answers.new /tmp/answers"
    tried = {
        "name": "tried",
        "image": image,
        "healthcheck": {"test": ["CMD-SHELL", script], "interval": "1s", "timeout": "30s"},
        **ROOT,
    }
    target = {"name": "target", "image": image}
    inside = deploy(installation, "escapes-check", container_file([target, tried]))
    check_escapes(json.loads(inside.run("tried", "cat", "/tmp/answers")))


@pytest.mark.attack("launch-rights")
def test_launch_privileges_of_hooks_are_out_of_reach(
    installation: Installation, image: str
) -> None:
    """A program running as root searches for guest processes that still have privileges."""
    hunter = {
        "name": "tried",
        "image": image,
        "command": ["hostile", "/tmp/enough", "/tmp/result", "stay"],
        "stop_signal": "SIGCONT",
        "stop_timeout": 0,
        **ROOT,
    }
    target = {"name": "target", "image": image}
    inside = deploy(installation, "escapes-hunt", container_file([target, hunter]))
    # As the kubelet does before it stops a container; the program resumes after SIGCONT.
    for _ in range(12):
        inside.run("tried", GUEST_PLACES[1], "stop", "-spec", GUEST_PLACES[2])
    inside.run("tried", "/bin/testprogram", "write", "/tmp/enough", "yes")

    def result() -> str:
        lines = inside.log("tried").splitlines()
        return next((each for each in lines if each.startswith("result ")), "")

    found = until_sync(result, within=240, every=1, what="the end of the hunt")
    assert found is not None
    seen, seized = map(int, found.split()[1:])
    assert seen > 0
    assert seized == 0


@pytest.mark.attack("symbolic-link")
def test_an_image_with_a_symlink_at_the_guests_mount_is_not_started(
    installation: Installation, cluster: Cluster
) -> None:
    """A symbolic link where the guest's mount belongs could be replaced by a root program."""
    hostile = push(
        guest_test_image(
            links={**guest_test_image().links, "/.cloister": "/data"}, folders=("/tmp", "/data")
        ),
        cluster.registry,
        "tests/linked",
    )
    file = container_file([{"name": "web", "image": hostile, **ROOT}])
    installation.repository("acme/linked").release("v1", file)
    installation.create_container("linked", repo="acme/linked", tag="v1")
    container = installation.wait_for("linked", "Stalled", within=240)
    (stalled,) = (each for each in container.status.conditions if each.type == "Stalled")
    assert "web" in (stalled.message or "")
