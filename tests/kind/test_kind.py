"""Clusters of kind, in a Docker of the test's own: images loaded by `kind load`, and the demo.

Docker, the node and this process are in a network namespace that has no way out, so that nothing
is pulled.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dev import cluster as local
from dev.chart.__main__ import main as charts
from dev.chart.loaded import REGISTRY
from dev.chart.local import PATIENCE, LocalInstallation
from dev.cluster import kind
from dev.cluster.images import Image, push
from dev.cluster.kind import docker, node
from dev.cluster.layout import layout
from dev.cluster.lifecycle import FORM
from dev.cluster.requirements import install_packages
from dev.demo import repository
from dev.demo.https_client import Page, fetch_page, forward_port
from dev.demo.manifests import NAMESPACE
from dev.images.local import local_images
from dev.images.release import ROOT
from dev.plain_http import NO_TRUST
from tests.support.cluster.clusters import session_name
from tests.support.installed.life import Tenant
from tests.support.installed.place import TAGS
from tests.support.kind.docker import docker_daemon, traces
from tests.support.servers.git import git_server
from tests.support.waiting import until_sync

pytestmark = [
    pytest.mark.node,
    pytest.mark.images,
    pytest.mark.programs("helm", "kubectl", *kind.programs()),
    pytest.mark.skipif(not kind.makes_node(), reason="a Docker of our own needs root on Linux"),
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module", autouse=True)
def daemon() -> Iterator[None]:
    """Provide Docker, and see that nothing of it is left at the end."""
    progress, name = local.Progress(), f"{session_name()}-docker"
    install_packages(["docker"], progress)
    # What needs the network.
    node.archive(progress)
    local_images(progress)
    before = traces(name)
    with docker_daemon(name):
        yield
        assert docker.run(["docker", "ps", "--all", "--quiet"]) == ""
    assert traces(name) - before == set()


@pytest.fixture
def kind_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[local.Cluster]:
    """Provide a cluster of kind."""
    monkeypatch.delenv(FORM, raising=False)
    name = f"{session_name()}-kind"
    try:
        yield local.up(name)
    finally:
        local.down(name)
        assert not layout(name).folder.exists()


def reports_images(cluster: local.Cluster) -> bool:
    """Return whether the kubelet has reported what was loaded, which it does twice a minute."""
    (node,) = json.loads(cluster.kubectl("get", "nodes", "-ojson"))["items"]
    names = [name for image in node["status"]["images"] for name in image.get("names") or ()]
    return len({name for name in names if name.startswith(f"{REGISTRY}/") and "@" in name}) >= 3


def page(installation: LocalInstallation) -> Page | None:
    """Return the page of the Container, verified with the installation's authority."""
    found = installation.cluster.kubectl(
        *("get", "services", "-n", NAMESPACE, "-l", "cloister.dev/container=web", "-ojson")
    )
    (service,) = json.loads(found)["items"]
    host = Tenant(installation, "").host()
    try:
        with forward_port(installation.cluster, NAMESPACE, service["metadata"]["name"]) as port:
            return fetch_page("127.0.0.1", port, host, "/", authority=installation.authority())
    except OSError:
        return None


def test_images_that_kind_loads_serve_a_container(kind_cluster: local.Cluster) -> None:
    cluster = kind_cluster
    assert cluster.form is local.Form.KIND
    folder = cluster.state_dir / "installed"
    program = repository.build_program(TAGS[0], folder / "programs")
    image = Image(files={"/hello": program}, entrypoint=("/hello",), user="65532:65532")
    reference = push(image, cluster.registry, repository.REPO, TAGS[0])
    repository.release(folder / "repositories", tag=TAGS[0], image=reference)
    # As `make kind-load` does.
    name = kind.cluster_name(cluster.name)
    assert charts(["--output", str(folder), "load", "--cluster", name]) == 0
    (chart,) = folder.glob("cloister-*.tgz")
    with git_server(folder / "repositories", address=cluster.host_address) as git:
        assert git.served is not None
        source = f"{cluster.host_address}:{git.served.port}"
        installation = LocalInstallation(cluster, folder, chart, source)
        installation.install()
        tenant = Tenant.create(installation)
        tenant.create_container()
        tenant.wait_until_ready()
        served = until_sync(lambda: page(installation), within=PATIENCE, what="the page")
        assert served is not None
        assert "from v1.0.0" in served.body

        until_sync(lambda: reports_images(cluster), within=PATIENCE, what="the images of the node")
        tested = installation.helm.run("test", installation.helm.release, "--logs")
        assert tested.returncode == 0, tested.stdout + tested.stderr
        assert tested.stdout.count("Succeeded") == 2, tested.stdout

    # The images of Cloister are those that were loaded: the registry has the tenant's alone.
    with httpx.Client(trust_env=False, verify=NO_TRUST) as client:
        listed = client.get(f"http://{cluster.registry}/v2/_catalog").json()
    assert listed == {"repositories": [repository.REPO]}
    pods = json.loads(cluster.kubectl("get", "pods", "-A", "-ojson"))["items"]
    images = {
        each["image"]
        for pod in pods
        for each in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))
    }
    assert len([each for each in images if each.startswith(f"{REGISTRY}/")]) == 3


def test_the_demo_takes_kind_where_docker_answers() -> None:
    name = f"{session_name()}-demo"
    done = subprocess.run(
        [sys.executable, "-m", "dev.demo", "up", "--check", "--cluster", name],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != FORM},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Docker answers: the cluster runs in it, by kind" in done.stderr
    assert "Every check passed." in done.stdout
    assert not Path(layout(name).folder).exists()
    assert docker.run(["docker", "ps", "--all", "--quiet"]) == ""
