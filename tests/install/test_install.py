"""The packaged chart and images of this checkout on a real node: from nothing to a Container."""

import json
import re
from collections.abc import Iterator

import pytest

from dev import cluster as local
from dev.chart.helm import NAMESPACE as SYSTEM
from dev.chart.local import API_CONFIG, PATIENCE, LocalInstallation, push_images
from dev.cluster import Progress
from dev.cluster.images import Image, push
from dev.demo import manifests, repository
from dev.demo.manifests import NAMESPACE
from dev.images.local import local_images
from tests.support.cluster.clusters import session_name
from tests.support.servers.git import git_server
from tests.support.waiting import until_sync

pytestmark = [pytest.mark.node, pytest.mark.images, pytest.mark.programs("helm")]

TAG = "v1.0.0"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalInstallation]:
    """Provide a cluster with our images in its registry, and a repository that it reaches."""
    folder = tmp_path_factory.mktemp("install")
    cluster = local.up(f"{session_name()}-install", node=True)
    chart = push_images(local_images(Progress()), cluster, folder)
    program = repository.build_program(TAG, folder / "programs")
    image = Image(files={"/hello": program}, entrypoint=("/hello",), user="65532:65532")
    repository.release(
        folder / "repositories",
        tag=TAG,
        image=push(image, cluster.registry, repository.REPO, TAG),
    )
    with git_server(folder / "repositories", address=cluster.host_address) as git:
        assert git.served is not None
        host = f"{cluster.host_address}:{git.served.port}"
        made = LocalInstallation(cluster, folder, chart, host)
        made.prepare()
        yield made
    local.down(cluster.name)


def leader(place: LocalInstallation) -> str:
    """Return the name of the Pod that holds the Lease."""
    holder = place.cluster.kubectl(
        *("get", "lease", "cloister-operator", "-n", SYSTEM),
        *("-o", "jsonpath={.spec.holderIdentity}"),
    )
    return holder.partition("_")[0]


def create_container(place: LocalInstallation) -> None:
    """Create an Organization, a key in the API's Pod, and a Container, and wait until it serves."""
    kubectl = place.cluster.kubectl
    place.apply(manifests.host(), manifests.organization())
    until_sync(lambda: kubectl("get", "namespace", NAMESPACE, "-oname"), within=PATIENCE)
    key = place.create_admin_key(
        organization=manifests.ORGANIZATION, user=manifests.USER, name="first"
    )
    assert key.startswith("admin_")
    place.apply(manifests.container("web", repo=repository.REPO, tag=TAG))
    kubectl(
        *("wait", "--for=condition=Ready", "ctr/web", "-n", NAMESPACE),
        f"--timeout={PATIENCE:.0f}s",
    )


def test_from_nothing_to_a_container_and_back(place: LocalInstallation) -> None:
    kubectl = place.cluster.kubectl
    place.run_helm("install")
    first = leader(place)
    assert first in kubectl("get", "pods", "-n", SYSTEM)

    create_container(place)

    # The leader gives the Lease up when it is stopped, so another one leads at once.
    kubectl("delete", "pod", first, "-n", SYSTEM, "--wait=false")
    until_sync(lambda: leader(place) not in {"", first}, within=10, what="another leader")

    # An upgrade changes nothing of the enclave.
    def pods() -> list[tuple[str, str]]:
        items = json.loads(kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
        return [(each["metadata"]["uid"], each["status"]["phase"]) for each in items]

    before = pods()
    assert before
    place.run_helm("upgrade", api={"settings": {"writeWaitSeconds": 6}})
    assert pods() == before

    # Deletion is refused with the Container's name, and nothing has gone.
    refused = place.helm.run("uninstall", "cloister")
    assert refused.returncode != 0
    assert f"not uninstalled while there are Containers ({NAMESPACE}/web)" in (
        refused.stdout + refused.stderr
    )
    kubectl("rollout", "status", "-n", SYSTEM, "deploy/cloister-operator", "--timeout=60s")
    restore = re.search(r"run `helm (rollback cloister \d+) -n", refused.stdout + refused.stderr)
    assert restore is not None, refused.stderr
    assert place.helm.run(*restore[1].split(), "--wait").returncode == 0
    place.run_helm("upgrade", api={"settings": {"writeWaitSeconds": 6}})
    assert pods() == before
    kubectl("delete", "ctr", "web", "-n", NAMESPACE, "--timeout=120s")
    until_sync(lambda: not kubectl("get", "encl", "-n", NAMESPACE, "-oname"), within=PATIENCE)
    gone = place.helm.run("uninstall", "cloister", "--wait")
    assert gone.returncode == 0, gone.stderr
    assert "cloister-no-entry" in kubectl("get", "validatingadmissionpolicies", "-oname")

    # Installed again it has its ledger.
    place.run_helm("install")
    listed = ("admin-key", "list", "--config", API_CONFIG)
    assert "first" in place.run(*listed, "--organization", manifests.ORGANIZATION)
