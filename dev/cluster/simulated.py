"""A simulated node, by kwok: Pods become ready and those of Jobs complete, but nothing runs.

For machines where no kubelet can run, and for tests of scale.
"""

from pathlib import Path

from dev.cluster.component import Component
from dev.cluster.control_plane import Identities, responds
from dev.cluster.kubeapi import KubeAPI
from dev.cluster.layout import Record

ANNOTATION = "kwok.x-k8s.io/node"

STAGES = Path(__file__).parent / "kwok-stages.yaml"
"""Transitions of nodes and Pods; without stages kwok does nothing."""


def kwok(record: Record, programs: dict[str, Path], identities: Identities) -> Component:
    """Return the component kwok."""
    port = record.ports["kwok"]
    argv = (
        str(programs["kwok"]),
        f"--kubeconfig={identities.client('kwok', 'system:kwok')}",
        f"--config={STAGES}",
        f"--manage-nodes-with-annotation-selector={ANNOTATION}=fake",
        f"--server-address=127.0.0.1:{port}",
        "--node-lease-duration-seconds=40",
        "--cidr=10.0.0.0/16",
    )
    return Component(
        name="kwok",
        argv=argv,
        ready=lambda: responds(f"http://127.0.0.1:{port}/healthz"),
        files=(STAGES,),
        ports=(("127.0.0.1", port),),
    )


def add_node(record: Record, api: KubeAPI) -> None:
    """Add the simulated node.

    Parameters
    ----------
    record
        The cluster; the node has its name.
    """
    metadata = {
        "name": record.name,
        "annotations": {ANNOTATION: "fake"},
        "labels": {
            "kubernetes.io/hostname": record.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        },
    }
    body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    api.apply(f"/api/v1/nodes/{record.name}", body)
