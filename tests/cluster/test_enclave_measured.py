"""Documents of a real enclave that are changed between their publication and its start.

Whoever can write to the cluster's storage, the API server or the node can do that. A quota keeps
the Pod from being created until the ConfigMap has been exchanged.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cloister_crds.kinds.enclave import EnclavePhase
from cloister_crds.names import config_map_name
from dev.cluster import Cluster, KubectlError
from tests.support.programs.operator import Installation, operator_lock
from tests.support.programs.web_service import PageServices, page_file
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def pages(cluster: Cluster) -> PageServices:
    return PageServices(cluster)


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster, pages: PageServices, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("installation")
    with operator_lock(cluster.name):
        installed = Installation(cluster, folder, pages.settings | {"claimAgeSeconds": 1})
        try:
            installed.prepare()
            installed.create_organization()
            installed.repository("acme/web").release("v1.0.0", page_file(pages.web, "one"))
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


def forbids_pods(installation: Installation) -> bool:
    """Return whether a quota refuses Pods: it does once its controller has seen it."""
    probe = ("run", "probe", "--image=registry.example/probe", "--dry-run=server")
    try:
        installation.kubectl(*probe, "-n", installation.namespace)
    except KubectlError as error:
        return "exceeded quota" in str(error)
    return False


def exchange(installation: Installation, name: str, document: str, *change: Any) -> None:
    """Create a Container, and change a value in one of its documents before it starts."""
    *path, value = change
    quota = {"name": "none", "namespace": installation.namespace}
    hard = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": quota}
    installation.apply({**hard, "spec": {"hard": {"pods": "0"}}})
    until_sync(lambda: forbids_pods(installation), what="a quota that is enforced")
    installation.create_container(name, repo="acme/web", tag="v1.0.0")

    def published() -> list[dict[str, Any]]:
        names = {config_map_name(each.metadata.name) for each in installation.enclaves(name)}
        maps = installation.objects("configmaps")
        return [each for each in maps if each["metadata"]["name"] in names]

    (found,) = until_sync(published, within=180, what="the ConfigMap")
    parsed = json.loads(found["data"][document])
    parent = parsed
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    found["data"][document] = json.dumps(parsed)
    kept = ("name", "namespace", "labels", "ownerReferences")
    found["metadata"] = {key: found["metadata"][key] for key in kept}
    within = ("-n", installation.namespace)
    # An operator would create it again at once.
    installation.kill_operator()
    installation.kubectl("delete", f"configmap/{found['metadata']['name']}", *within)
    installation.apply(found)
    installation.kubectl("delete", "resourcequota/none", *within)
    installation.operator().wait_until_it_leads()


CHANGES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "agent": ("agent.json", ("attestation", "bindsKey", True)),
    "container": ("container-0.json", ("command", ["/bin/sh", "-c", "id"])),
    "network": ("network.json", ("inbound", [8443, 22])),
    "shim": ("shim.json", ("signed", True)),
}


@pytest.mark.parametrize("part", CHANGES)
def test_a_changed_document_fails_the_boot_with_its_reason(
    installation: Installation, part: str
) -> None:
    document, change = CHANGES[part]
    exchange(installation, f"changed-{part}", document, *change)

    def failed() -> bool:
        (enclave,) = installation.enclaves(f"changed-{part}")
        return enclave.status.phase is EnclavePhase.FAILED

    until_sync(failed, within=240, what="the failed attempt")
    (enclave,) = installation.enclaves(f"changed-{part}")
    assert enclave.status.reason == "MeasurementMismatch", enclave.status.message
    assert f"not what was measured: {document} has the digest sha256:" in enclave.status.message


def test_another_name_in_what_is_not_measured_changes_no_measurement(
    installation: Installation,
) -> None:
    labels = {"id": "other", "image": "acme/other@v9", "cpuType": "", "gpuType": ""}
    exchange(installation, "told", "unmeasured.json", "labels", labels)
    container = installation.wait_for("told", "Ready")
    installation.create_container("honest", repo="acme/web", tag="v1.0.0")
    honest = installation.wait_for("honest", "Ready")
    measured = {
        each.metadata.name: each.status.measurement
        for name in ("told", "honest")
        for each in installation.enclaves(name)
    }
    names = (container.status.active_enclave, honest.status.active_enclave)
    assert measured[names[0]] == measured[names[1]] != ""
