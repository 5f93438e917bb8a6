"""GPUs and devices in real Pods, from stand-ins for a device plugin and a DRA driver.

Both go through the real kubelet, the driver's also through the real scheduler and containerd.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from dev.cluster import Cluster
from tests.support.clients.container_watch import watching
from tests.support.programs.operator import Installation, condition_of, manifest, operator_lock
from tests.support.programs.web_service import STOP_TIMEOUT, PageServices, page_file
from tests.support.stand_ins.device_plugins import DevicePlugin, build_plugin
from tests.support.stand_ins.dra_drivers import DraDriver
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node

GPU = "cloister.test/gpu"
DEVICE = "cloister.test/thing"
DRIVER = "dra.cloister.test"
THING = "/dev/cloister-thing"
SLEEP = {"command": ["sleep", "3600"], "stop_timeout": STOP_TIMEOUT}


def with_gpus(file: bytes, count: int, *containers: dict[str, Any], **first: Any) -> bytes:
    """Build the file of an enclave with GPUs, whose first container serves a page."""
    document = yaml.safe_load(file)
    document["gpus"] = count
    document["containers"][0] |= first
    image = document["containers"][0]["image"]
    document["containers"] += [{"image": image, **SLEEP, **each} for each in containers]
    # JSON is YAML without anchors, which files must not have.
    return json.dumps(document).encode()


def using(gpus: str) -> dict[str, str]:
    """Build the keys of a container with GPUs."""
    return {"runtime": "nvidia", "gpus": gpus}


@pytest.fixture(scope="module")
def pages(cluster: Cluster) -> PageServices:
    """Push the images."""
    return PageServices(cluster)


@pytest.fixture(scope="module")
def plugins(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Provide a node with eight GPUs and two other devices."""
    gpus = [f"/dev/cloister-gpu{number}" for number in range(8)]
    program = build_plugin(tmp_path_factory.mktemp("plugin"))
    started = [DevicePlugin(program, cluster, GPU, gpus, "-count", "8")]
    try:
        options = ("-count", "2", "-prefix", "thing-", "-path", THING)
        started.append(DevicePlugin(program, cluster, DEVICE, [THING], *options))
        yield
    finally:
        for each in started:
            each.end()


@pytest.fixture(scope="module")
def driver(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DraDriver]:
    """Provide a node with three GPUs of a driver."""
    folder = tmp_path_factory.mktemp("driver")
    started = DraDriver(folder, cluster, DRIVER, "/dev/cloister-dra", 3)
    try:
        yield started
    finally:
        started.end()


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster,
    pages: PageServices,
    plugins: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installation]:
    """Start an operator whose Host has GPUs."""
    folder = tmp_path_factory.mktemp("installation")
    page = page_file(pages.web, "gpus")
    greedy = [{"NVIDIA_VISIBLE_DEVICES": "all"}]
    files = {
        "v1.0.0": with_gpus(
            page,
            4,
            {"name": "two", **using("1,2"), "env": greedy},
            {"name": "none", "env": greedy, "devices": [THING]},
            **using("0"),
        ),
        "v2.0.0": with_gpus(page, 8, **using("0,1")),
        "v2.1.0": with_gpus(page, 8, **using("0,1")),
        "v3.0.0": with_gpus(page, 1, **using("all")),
        "v4.0.0": with_gpus(page, 1, {"name": "other", **using("all")}, **using("all")),
        "v5.0.0": with_gpus(
            page,
            2,
            {"name": "two", **using("0"), "env": greedy},
            {"name": "none", "env": greedy},
            **using("all"),
        ),
    }
    with operator_lock(cluster.name):
        installed = Installation(cluster, folder, pages.settings | {"claimAgeSeconds": 1})
        try:
            installed.prepare()
            gpu = {"resource": GPU, "counts": [1, 4, 8], "type": "Pretended"}
            devices = [{"path": THING, "resource": DEVICE}]
            installed.create_organization(host={"gpu": gpu, "devices": devices})
            organization = {
                "namespace": installed.namespace,
                "billing": {"containerSubscription": True},
                "entitlements": {"hostSelection": True, "gpu": True},
                "limits": {"containers": 1000, "gpus": [1, 2, 4, 8]},
            }
            installed.apply(manifest("Organization", installed.slug, organization))
            repository = installed.repository("acme/gpus")
            for tag, file in files.items():
                repository.release(tag, file)
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


def visible(installation: Installation, enclave: str, container: str) -> tuple[str, list[str]]:
    """Return the GPUs named to a container, and the devices that it has."""
    run = ("exec", "-n", installation.namespace, enclave, "-c", container, "--")
    reported = installation.kubectl(*run, "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES").strip()
    listed = installation.kubectl(*run, "ls", "/dev").split()
    return reported, [each for each in listed if each.startswith("cloister-")]


@pytest.mark.spec("42.32")
def test_each_container_has_its_own_gpus(installation: Installation) -> None:
    installation.create_container("split", repo="acme/gpus", tag="v1.0.0")
    container = installation.wait_for("split", "Ready")
    assert container.status.resources is not None
    assert container.status.resources.gpus == 4
    enclave = container.status.active_enclave
    one, two = (visible(installation, enclave, name) for name in ("web", "two"))
    ids = [reported.split(",") for reported, _ in (one, two)]
    assert [len(each) for each in ids] == [1, 2]
    assert len({*ids[0], *ids[1]}) == 3, "two containers have the same GPU"
    for (_, devices), names in zip((one, two), ids, strict=True):
        assert sorted(devices) == sorted(each.replace("GPU-", "cloister-gpu") for each in names)
    assert visible(installation, enclave, "none") == ("void", ["cloister-thing"])
    assert "containers[1].env.NVIDIA_VISIBLE_DEVICES" in container.status.unenforced
    installation.kubectl("delete", "ctr/split", "-n", installation.namespace)


def update_in_place(installation: Installation) -> None:
    """Update the enclave that has all GPUs: it is deleted first (Recreate strategy)."""
    old = installation.wait_for("whole", "Ready").status.active_enclave

    def updated() -> bool:
        container = installation.container("whole")
        assert container is not None
        status = container.status
        return status.current_tag == "v2.1.0" and status.active_enclave not in {"", old}

    fields = (".status.phase", ".status.update.status", ".status.update.type")
    with watching(installation, "whole", *fields) as watched:
        installation.create_container("whole", repo="acme/gpus", tag="v2.1.0")
        until_sync(updated, what="an update that stops first")
    seen = [row for row in watched.rows if row[1] != "<none>"]
    words = {each[1:] for each in seen if each[1] != "pending"}
    assert words == {("deploying", "replace")}, seen
    assert {each[0] for each in seen} > {"deploying"}, "what served did not end first"
    new = installation.wait_for("whole", "Ready", reason="Serving").status.active_enclave
    pod = next(each for each in installation.objects("pods") if each["metadata"]["name"] == new)
    assert (pod["spec"]["priorityClassName"], pod["spec"]["preemptionPolicy"]) == (
        "cloister-successor",
        "Never",
    )
    assert len(visible(installation, new, "web")[0].split(",")) == 2


@pytest.mark.lifecycle("recreate")
def test_an_enclave_keeps_the_gpus_that_no_container_has(installation: Installation) -> None:
    """Eight GPUs are requested and two are used: another enclave gets none of the other six."""
    until_sync(lambda: not installation.objects("pods"), what="the end of the Pods")
    installation.create_container("whole", repo="acme/gpus", tag="v2.0.0")
    enclave = installation.wait_for("whole", "Ready").status.active_enclave
    assert len(visible(installation, enclave, "web")[0].split(",")) == 2
    installation.create_container("waits", repo="acme/gpus", tag="v3.0.0")

    def without_room() -> bool:
        container = installation.container("waits")
        ready = condition_of(container, "Ready") if container is not None else None
        return ready is not None and ready["reason"] == "Unschedulable" and GPU in ready["message"]

    until_sync(without_room, every=0.5, what="an enclave without room")
    update_in_place(installation)
    assert without_room(), "the update let another one have its GPUs"
    installation.kubectl("delete", "ctr/whole", "-n", installation.namespace)
    container = installation.wait_for("waits", "Ready")
    assert len(visible(installation, container.status.active_enclave, "web")[0].split(",")) == 1
    installation.kubectl("delete", "ctr/waits", "-n", installation.namespace)


@pytest.mark.spec("42.32")
@pytest.mark.lifecycle("not-admitted")
def test_gpus_that_two_containers_want_are_refused(installation: Installation) -> None:
    installation.create_container("shared", repo="acme/gpus", tag="v4.0.0")
    stalled = condition_of(installation.wait_for("shared", "Stalled"), "Stalled")
    assert stalled is not None
    assert stalled["reason"] == "GpusNotAvailable"
    assert "Containers web, other share GPU 0" in stalled["message"]
    assert installation.enclaves("shared") == []


def shared_host(installation: Installation) -> str:
    """Create a Host whose GPUs are the driver's, and return its name."""
    name = f"{installation.host}-driver"
    gpu = {"deviceClass": DRIVER, "counts": [1, 2]}
    spec = {"overcommit": {"cpuPercent": 1, "memoryPercent": 1}, "gpu": gpu}
    installation.apply(manifest("Host", name, spec))
    return name


def relaunch(installation: Installation, name: str, **spec: str) -> None:
    """Relaunch an enclave of two of three GPUs: its successor waits until they are free."""
    old = installation.wait_for(name, "Ready").status.active_enclave
    installation.create_container(name, repo="acme/gpus", relaunch="once", **spec)

    def updated() -> bool:
        container = installation.container(name)
        assert container is not None
        return container.status.active_enclave not in {"", old}

    until_sync(updated, every=0.5, what="the successor")
    new = installation.wait_for(name, "Ready").status.active_enclave
    assert len(visible(installation, new, "web")[1]) == 2


@pytest.mark.spec("42.32")
def test_containers_share_the_gpus_of_a_driver(
    installation: Installation, driver: DraDriver
) -> None:
    """Each has what the file says, and no other enclave has any of it."""
    host = shared_host(installation)
    for name, tag in (("all", "v4.0.0"), ("some", "v5.0.0")):
        installation.create_container(name, repo="acme/gpus", tag=tag, host=host)
    enclaves = [
        installation.wait_for(name, "Ready").status.active_enclave for name in ("all", "some")
    ]
    web, other = (visible(installation, enclaves[0], name) for name in ("web", "other"))
    both, first = (visible(installation, enclaves[1], name) for name in ("web", "two"))
    assert [len(each[1]) for each in (web, both, first)] == [1, 2, 1]
    assert web == other
    assert set(first[1]) < set(both[1])
    assert sorted([*web[1], *both[1]]) == [f"cloister-dra{number}" for number in range(3)]
    none = visible(installation, enclaves[1], "none")
    assert none == ("void", [])
    assert {each[0] for each in (web, other, both, first)} == {"void"}, "an image chose its GPUs"
    claims = {each["metadata"]["uid"]: each for each in installation.objects("resourceclaims")}
    assert driver.prepared() == sorted(claims)
    owners = [claim["metadata"]["ownerReferences"][0]["name"] for claim in claims.values()]
    assert sorted(owners) == sorted([enclaves[0], enclaves[1], enclaves[1]])
    relaunch(installation, "some", tag="v5.0.0", host=host)
    installation.kubectl("delete", "ctr/all", "ctr/some", "-n", installation.namespace)
    until_sync(
        lambda: not installation.objects("resourceclaims") and not driver.prepared(),
        every=0.5,
        what="the end of the claims",
    )
