"""Lost nodes: what served on them is started elsewhere, the same to the byte.

The nodes are played; the server, and the controllers that evict from a lost node, are real. Nothing
that runs on a lost node is heard of again, so nobody may wait for the end of the old Pod.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloister_clients.kube.kinds import CONFIG_MAP, NODE, POD, SECRET, of
from cloister_crds.kinds import Enclave
from cloister_crds.kinds.container import ContainerPhase
from dev.cluster import Cluster
from tests.support.faults.crashing_operators import ProxiedInstallation, proxied_installation
from tests.support.lifecycles.steps import STEPS, ContainerLifecycles, await_settled
from tests.support.programs.operator import condition_of
from tests.support.waiting import until_sync

pytestmark = pytest.mark.timeout(600)
PATIENCE = 180.0
OUT_OF_SERVICE = {
    "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute",
}  # fmt: skip
"""What an administrator writes on a node that is down for good (Kubernetes, "Node Shutdowns")."""


@pytest.fixture
def place(api_cluster: Cluster, tmp_path: Path) -> Iterator[ProxiedInstallation]:
    with proxied_installation(api_cluster, tmp_path, nodes=("loss-first",)) as found:
        yield found


def serving(lifecycles: ContainerLifecycles) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the Enclave that serves, and its Pod."""
    container = lifecycles.installation.container("web")
    assert container is not None
    name = container.status.active_enclave
    enclave = lifecycles.direct.get(of(Enclave), name, lifecycles.namespace)
    pod = lifecycles.direct.get(POD, name, lifecycles.namespace)
    assert enclave is not None
    assert pod is not None
    return enclave, pod


def copies(lifecycles: ContainerLifecycles, enclave: dict[str, Any]) -> list[Any]:
    """Return the bytes of the file and of the secrets of an Enclave."""
    uid = enclave["metadata"]["uid"]
    return [
        [each.get("binaryData"), each.get("data"), each["immutable"]]
        for ref in (CONFIG_MAP, SECRET)
        for each in lifecycles.direct.list_objects(ref, lifecycles.namespace)
        if uid in {owner["uid"] for owner in each["metadata"].get("ownerReferences", ())}
    ]


def assert_comes_back(
    place: ProxiedInstallation, lifecycles: ContainerLifecycles, lost: str, found: str
) -> None:
    """Check that the loss is reported, then add a node and check that the same serves there."""
    enclave, pod = serving(lifecycles)
    kept = copies(lifecycles, enclave)
    assert pod["spec"]["nodeName"] == lost

    name = enclave["metadata"]["name"]

    def reported() -> bool:
        container = place.installation.container("web")
        failed = lifecycles.direct.get(of(Enclave), name, lifecycles.namespace)
        assert container is not None
        assert failed is not None
        available = condition_of(container, "Available")
        status = failed["status"]
        assert status["reason"] == "NodeLost", status
        assert f"Node {lost} is gone" in status["message"]
        waits = available is not None and available["status"] == "False"
        return waits and container.status.phase is ContainerPhase.DEPLOYING

    try:
        until_sync(reported, within=PATIENCE, what=f"that {lost} is lost")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{place.installation.logs()}") from error
    place.nodes.add(found)
    await_settled(lifecycles, STEPS[0], "web", within=PATIENCE)
    again, pod = serving(lifecycles)
    assert pod["spec"]["nodeName"] == found
    assert again["spec"]["attempt"] == enclave["spec"]["attempt"] + 1
    fields = ("revision", "tag", "commit", "configDigest", "images", "hostnames", "request")
    assert {each: again["spec"][each] for each in fields} == {
        each: enclave["spec"][each] for each in fields
    }
    assert copies(lifecycles, again) == kept
    # The file, the secrets' values.
    assert len(kept) == 2


@pytest.mark.lifecycle("node-lost")
def test_a_lost_node_is_not_waited_for(place: ProxiedInstallation, image_of_life: str) -> None:
    lifecycles = ContainerLifecycles(place.installation, place.proxy, place.direct, image_of_life)
    lifecycles.prepare()
    place.operator("only").wait_until_it_leads()
    lifecycles.create("web")
    await_settled(lifecycles, STEPS[0], "web")
    # Nothing is looked up again: the repository is away, and the secret has another value now.
    repositories = place.installation.repositories.path
    repositories.rename(repositories.with_name("away"))
    value = {"stringData": {"value": "another"}}
    assert place.direct.patch(SECRET, "token", value, lifecycles.namespace).is_success

    # It dies, and the administrator taints it: the cluster evicts, and the Pod never terminates.
    place.nodes.kill("loss-first")
    taint = {"spec": {"taints": [OUT_OF_SERVICE]}}
    assert place.direct.patch(NODE, "loss-first", taint).is_success
    assert_comes_back(place, lifecycles, "loss-first", "loss-second")
    # It is removed from the cluster, as the provider of its machine does.
    place.nodes.dead.add("loss-second")
    assert place.direct.delete(NODE, "loss-second").is_success
    assert_comes_back(place, lifecycles, "loss-second", "loss-third")
