"""Nodes that are lost, with what serves on them: it comes back elsewhere, the same to the byte.

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
from tests.support.faults.crashing_operators import Disturbed, disturbed
from tests.support.lifecycles.steps import STEPS, Life, settled
from tests.support.programs.operator import condition_of
from tests.support.waiting import until_sync

pytestmark = pytest.mark.timeout(600)
PATIENCE = 180.0
OUT_OF_SERVICE = {
    "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute",
}  # fmt: skip
"""What an administrator writes on a node that is down for good (Kubernetes, "Node Shutdowns")."""


@pytest.fixture
def place(api_cluster: Cluster, tmp_path: Path) -> Iterator[Disturbed]:
    with disturbed(api_cluster, tmp_path, nodes=("loss-first",)) as found:
        yield found


def serving(life: Life) -> tuple[dict[str, Any], dict[str, Any]]:
    """Answer the Enclave that serves, and its Pod."""
    container = life.installation.container("web")
    assert container is not None
    name = container.status.active_enclave
    enclave = life.direct.get(of(Enclave), name, life.namespace)
    pod = life.direct.get(POD, name, life.namespace)
    assert enclave is not None
    assert pod is not None
    return enclave, pod


def copies(life: Life, enclave: dict[str, Any]) -> list[Any]:
    """Answer the bytes of the file and of the secrets that an Enclave was given."""
    uid = enclave["metadata"]["uid"]
    return [
        [each.get("binaryData"), each.get("data"), each["immutable"]]
        for ref in (CONFIG_MAP, SECRET)
        for each in life.direct.listed(ref, life.namespace)
        if uid in {owner["uid"] for owner in each["metadata"].get("ownerReferences", ())}
    ]


def assert_comes_back(place: Disturbed, life: Life, lost: str, found: str) -> None:
    """See the loss told, then give the Container another node and see the same serve there."""
    enclave, pod = serving(life)
    kept = copies(life, enclave)
    assert pod["spec"]["nodeName"] == lost

    name = enclave["metadata"]["name"]

    def told() -> bool:
        container = place.installation.container("web")
        failed = life.direct.get(of(Enclave), name, life.namespace)
        assert container is not None
        assert failed is not None
        available = condition_of(container, "Available")
        status = failed["status"]
        assert status["reason"] == "NodeLost", status
        assert f"Node {lost} is gone" in status["message"]
        waits = available is not None and available["status"] == "False"
        return waits and container.status.phase is ContainerPhase.DEPLOYING

    try:
        until_sync(told, within=PATIENCE, what=f"that {lost} is lost")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{place.installation.logs()}") from error
    place.nodes.add(found)
    settled(life, STEPS[0], "web", within=PATIENCE)
    again, pod = serving(life)
    assert pod["spec"]["nodeName"] == found
    assert again["spec"]["attempt"] == enclave["spec"]["attempt"] + 1
    fields = ("revision", "tag", "commit", "configDigest", "images", "hostnames", "request")
    assert {each: again["spec"][each] for each in fields} == {
        each: enclave["spec"][each] for each in fields
    }
    assert copies(life, again) == kept
    # The file, the secrets' values.
    assert len(kept) == 2


def test_a_lost_node_is_not_waited_for(place: Disturbed, image_of_life: str) -> None:
    life = Life(place.installation, place.proxy, place.direct, image_of_life)
    life.prepare()
    place.operator("only").wait_until_it_leads()
    life.create("web")
    settled(life, STEPS[0], "web")
    # Nothing is asked anew: the repository is away, and the secret has another value now.
    repositories = place.installation.repositories.path
    repositories.rename(repositories.with_name("away"))
    value = {"stringData": {"value": "another"}}
    assert place.direct.patch(SECRET, "token", value, life.namespace).is_success

    # It dies, and the administrator says so: the cluster evicts, and the Pod never ends.
    place.nodes.kill("loss-first")
    taint = {"spec": {"taints": [OUT_OF_SERVICE]}}
    assert place.direct.patch(NODE, "loss-first", taint).is_success
    assert_comes_back(place, life, "loss-first", "loss-second")
    # It is taken out of the cluster, as the provider of its machine does.
    place.nodes.dead.add("loss-second")
    assert place.direct.delete(NODE, "loss-second").is_success
    assert_comes_back(place, life, "loss-second", "loss-third")
