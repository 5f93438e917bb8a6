"""A node that only pretends, by kwok: Pods are bound and become ready, nothing runs.

For machines where no kubelet can run, and for tests of scale.
"""

from pathlib import Path
from typing import Any

import yaml

from dev.cluster.control_plane import Identities, answers
from dev.cluster.kubeapi import KubeAPI
from dev.cluster.processes import Component
from dev.cluster.state import Layout, Record

__all__ = ["add_node", "kwok", "stages"]

ANNOTATION = "kwok.x-k8s.io/node"


def _stage(name: str, kind: str, selector: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": selector,
            "next": then,
        },
    }


def _expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    found: dict[str, Any] = {"key": key, "operator": operator}
    return {**found, "values": list(values)} if values else found


NODE_READY = """\
{{ $now := Now }}
conditions:
- {type: Ready, status: "True", reason: KubeletReady, message: pretends to be ready,
   lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $now | Quote }}}
addresses:
- {type: InternalIP, address: {{ NodeIPWith .metadata.name | Quote }}}
- {type: Hostname, address: {{ .metadata.name | Quote }}}
allocatable: {cpu: "64", memory: 256Gi, pods: "2000"}
capacity: {cpu: "64", memory: 256Gi, pods: "2000"}
nodeInfo: {architecture: amd64, operatingSystem: linux, kubeletVersion: kwok,
  bootID: "", containerRuntimeVersion: "", kernelVersion: "", kubeProxyVersion: "",
  machineID: "", osImage: "", systemUUID: ""}
phase: Running
"""

POD_READY = """\
{{ $now := Now }}
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- {image: {{ .image | Quote }}, name: {{ .name | Quote }}, imageID: "", ready: true, started: true,
   restartCount: 0, state: {running: {startedAt: {{ $now | Quote }}}}}
{{ end }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) | Quote }}
phase: Running
startTime: {{ $now | Quote }}
"""


def stages() -> list[dict[str, Any]]:
    """Say what becomes of nodes and Pods; without stages kwok does nothing.

    Returns
    -------
    list[dict]
        Stage objects of kwok's configuration.
    """
    deletion = ".metadata.deletionTimestamp"
    ready = {
        "matchExpressions": [
            _expression(
                '.status.conditions.[] | select( .type == "Ready" ) | .status', "NotIn", "True"
            )
        ]
    }
    waiting = {
        "matchExpressions": [
            _expression(deletion, "DoesNotExist"),
            _expression(".status.podIP", "DoesNotExist"),
        ]
    }
    ending = {"matchExpressions": [_expression(deletion, "Exists")]}
    return [
        _stage("node-ready", "Node", ready, {"statusTemplate": NODE_READY}),
        _stage("pod-ready", "Pod", waiting, {"statusTemplate": POD_READY}),
        _stage("pod-delete", "Pod", ending, {"finalizers": {"empty": True}, "delete": True}),
    ]


def kwok(layout: Layout, record: Record, programs: dict[str, Path], who: Identities) -> Component:
    """Say how kwok is started.

    Parameters
    ----------
    layout
        Places of the cluster.
    record
        The cluster.
    programs
        Name of a program -> its place.
    who
        Certificates of the components.

    Returns
    -------
    Component
        The process.
    """
    port = record.ports["kwok"]
    path = layout.config / "kwok.yaml"
    path.write_text(yaml.safe_dump_all(stages()))
    argv = (
        str(programs["kwok"]),
        f"--kubeconfig={who.client('kwok', 'system:kwok')}",
        f"--config={path}",
        f"--manage-nodes-with-annotation-selector={ANNOTATION}=fake",
        f"--server-address=127.0.0.1:{port}",
        "--node-lease-duration-seconds=40",
        "--cidr=10.0.0.0/16",
    )
    return Component(
        name="kwok",
        argv=argv,
        ready=lambda: answers(f"http://127.0.0.1:{port}/healthz"),
        files=(path,),
        ports=(("127.0.0.1", port),),
    )


def add_node(record: Record, api: KubeAPI) -> None:
    """Add the node that only pretends.

    Parameters
    ----------
    record
        The cluster; the node has its name.
    api
        Its API.
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
