"""Auto-update, drain and recovery on a real node, with an operator that is killed in between.

A client polls continuously and observes no failure. There is only one node: the Host
tolerates a cordon, so that the successor of a drained Pod can run on the same node.
"""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloister_crds.kinds import Container
from cloister_crds.names import ENCLAVE_LABEL, config_map_name, deployment_name
from dev.cluster import Cluster
from tests.support.clients.polling_client import PollingClient, polling
from tests.support.faults.crashing_operators import QUICK_LEASE
from tests.support.programs.operator import (
    Installation,
    OperatorProcess,
    condition_of,
    operator_lock,
)
from tests.support.programs.web_service import PageServices, page_file
from tests.support.servers.git import Repository
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node

REPO = "acme/moves"
CORDON = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
LATER = 1_700_100_000
"""Publication time of the second release."""


@pytest.fixture(scope="module")
def pages(cluster: Cluster) -> PageServices:
    return PageServices(cluster)


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster, pages: PageServices, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    folder: Path = tmp_path_factory.mktemp("installation")
    # A node that follows the EndpointSlice some seconds late still loses no request.
    settings = pages.settings | {"claimAgeSeconds": 1, "lease": QUICK_LEASE, "drainSeconds": 6}
    with operator_lock(cluster.name):
        installed = Installation(cluster, folder, settings)
        try:
            installed.prepare()
            installed.create_organization(host={"tolerations": [CORDON]})
            installed.repository(REPO).release("v1.0.0", page_file(pages.web, "one"))
            installed.operator().wait_until_it_leads()
            installed.create_container("moves", repo=REPO, tag="v1.0.0", autoUpdate=True)
            installed.wait_for("moves", "Ready", reason="Serving")
            yield installed
        finally:
            installed.end()


@contextlib.contextmanager
def nothing_is_lost(installation: Installation) -> Iterator[PollingClient]:
    """Poll the page while the block runs; no request may fail."""
    (address,) = (
        each["spec"]["clusterIP"]
        for each in installation.objects("services")
        if each["metadata"]["name"] == "moves"
    )
    with polling(address, present(installation).status.domain) as client:
        until_sync(lambda: client.bodies, what="the first response")
        yield client
        sent = client.count
        until_sync(lambda: client.count > sent + 10, what="more requests")
    assert client.failures == []


def present(installation: Installation) -> Container:
    """Read the Container."""
    container = installation.container("moves")
    assert container is not None
    return container


def kill_and_start(installation: Installation) -> OperatorProcess:
    """Kill the operator (SIGKILL), and start another one."""
    installation.kill_operator()
    operator = installation.operator()
    operator.wait_until_it_leads()
    return operator


def wait_for_candidate(installation: Installation) -> str:
    """Wait until a candidate Enclave exists, and return its name."""

    def candidate() -> str:
        status = present(installation).status
        return status.candidate if status.candidate != status.active_enclave else ""

    return until_sync(candidate, every=0.1, what="a successor")


def settled(installation: Installation, *, not_in: str) -> Container:
    """Wait until an Enclave other than that serves and is the only one."""

    def alone() -> Container | None:
        container = present(installation)
        ready = condition_of(container, "Ready")
        there = [each.metadata.name for each in installation.enclaves("moves")]
        only = there == [container.status.active_enclave] and not_in not in there
        return container if only and ready is not None and ready["status"] == "True" else None

    found = until_sync(alone, every=0.3, what=f"the end of {not_in}")
    assert found is not None
    return found


@pytest.mark.lifecycle("blue-green", "killed-in-automatic-update", "later-release")
def test_auto_update_to_a_later_release_loses_no_request(installation: Installation) -> None:
    first = present(installation).status.active_enclave
    with nothing_is_lost(installation) as client:
        page = page_file(web_of(installation), "two")
        Repository(installation.repositories.path / f"{REPO}.git").release(
            "v1.1.0", page, when=LATER
        )
        name = f"deployments.cloister.dev/{deployment_name(REPO)}"
        stamp = "cloister.dev/requested-at=now"
        installation.kubectl("annotate", name, "-n", installation.namespace, stamp)
        candidate = wait_for_candidate(installation)
        kill_and_start(installation)
        container = settled(installation, not_in=first)
    assert container.status.active_enclave == candidate, "the killed operator's work was done again"
    assert container.status.current_tag == "v1.1.0"
    assert container.spec.tag == "v1.0.0", "spec is the user's"
    assert client.bodies == ["one", "two"]


@pytest.mark.lifecycle("killed-in-drain", "node-cordoned")
def test_a_node_drain_replaces_the_serving_pod_without_losing_a_request(
    installation: Installation, cluster: Cluster
) -> None:
    old = present(installation).status.active_enclave
    node = next(
        each["spec"]["nodeName"]
        for each in installation.objects("pods")
        if each["metadata"]["name"] == old
    )
    drain = ("drain", node, "--force", "--delete-emptydir-data", "--ignore-daemonsets")
    chosen = f"--pod-selector={ENCLAVE_LABEL}={old}"
    # The client polls from before the drain until after it.
    try:
        with nothing_is_lost(installation) as client:
            program = (str(cluster.bin("kubectl")), f"--kubeconfig={cluster.kubeconfig}")
            arguments = [*program, *drain, chosen, "--timeout=150s"]
            draining = subprocess.Popen(
                arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            wait_for_candidate(installation)
            kill_and_start(installation)
            said, _ = draining.communicate(timeout=180)
            assert draining.returncode == 0, said
            assert "Cannot evict pod as it would violate the pod's disruption budget" in said
            installation.kubectl("uncordon", node)
            settled(installation, not_in=old)
    finally:
        installation.kubectl("uncordon", node)
    assert client.bodies == ["two"]


@pytest.mark.lifecycle("pod-lost")
def test_a_lost_pod_is_replaced_while_source_and_registry_are_unavailable(
    installation: Installation,
) -> None:
    before = present(installation)
    lost = before.status.active_enclave
    (old,) = installation.enclaves("moves")
    kept = config_of(installation, lost)
    away = installation.folder / "away"
    installation.repositories.path.rename(away)
    usual = dict(installation.settings)
    try:
        # Nothing listens there, and the cluster's registry may not be queried.
        installation.settings |= {"registry": {}}
        kill_and_start(installation)
        installation.kubectl("delete", "pod", lost, "-n", installation.namespace, "--wait=false")
        container = settled(installation, not_in=lost)
    finally:
        away.rename(installation.repositories.path)
        installation.settings = usual
    (new,) = installation.enclaves("moves")
    assert new.spec.attempt == old.spec.attempt + 1
    for field in ("revision", "commit", "config_digest", "images", "tag", "hostnames"):
        assert getattr(new.spec, field) == getattr(old.spec, field), field
    assert config_of(installation, new.metadata.name) == kept
    assert container.status.current_tag == before.status.current_tag
    with nothing_is_lost(installation) as client:
        pass
    assert client.bodies == ["two"]


def config_of(installation: Installation, enclave: str) -> str:
    """Read the bytes of an Enclave's configuration file from its ConfigMap."""
    maps: list[dict[str, Any]] = installation.objects("configmaps")
    name = config_map_name(enclave)
    found = next(each for each in maps if each["metadata"]["name"] == name)
    return json.dumps(found["binaryData"], sort_keys=True)


def web_of(installation: Installation) -> str:
    """Return the image of the page."""
    (enclave,) = installation.enclaves("moves")
    return enclave.spec.images[0].image
