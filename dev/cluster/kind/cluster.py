"""Starts and removes a cluster of kind with a registry beside it.

The registry follows kind's page "Local Registry".
"""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from dev.cluster.binaries import load as versions
from dev.cluster.images import Image
from dev.cluster.kind import docker, node
from dev.cluster.layout import Form, Layout, LocalClusterError, Record, free_port, others
from dev.cluster.node import may_raise_limits
from dev.cluster.processes import Progress

HOSTS: Final = "/etc/containerd/certs.d"
"""Where containerd in a kind node looks for registries."""
REGISTRY_CONFIG: Final = {
    "version": 0.1,
    "storage": {"filesystem": {"rootdirectory": "/var/lib/registry"}},
    "http": {"addr": ":5000"},
}


def makes_node() -> bool:
    """Return whether node and registry are made here: on Linux as root, as mmdebstrap needs it."""
    return sys.platform.startswith("linux") and os.geteuid() == 0


def programs() -> tuple[str, ...]:
    """List the programs that are built for it."""
    return ("kind", *node.PROGRAMS, "registry") if makes_node() else ("kind",)


def cluster_name(name: str) -> str:
    """Return what kind calls a cluster."""
    return f"cloister-{name}"


def container(name: str) -> str:
    """Return the name of the node, and of its container."""
    return f"{cluster_name(name)}-control-plane"


def _registry(name: str) -> str:
    return f"cloister-{name}-registry"


def pod_registry(name: str) -> str:
    """Return host and port at which Pods reach the registry: Docker's DNS knows its name."""
    return f"{_registry(name)}:5000"


def host_address() -> str:
    """Return the address of this machine in the network of kind's nodes.

    Raises
    ------
    LocalClusterError
        When Docker fails, or the network has no gateway of IPv4.
    """
    (network,) = json.loads(docker.run(["docker", "network", "inspect", "kind"]))
    for each in network["IPAM"]["Config"]:
        if "." in each.get("Gateway", ""):
            return str(each["Gateway"])
    raise LocalClusterError("Docker's network kind has no gateway of IPv4; remove the network")


def configuration(places: Layout, image: str, *, made: bool) -> dict[str, Any]:
    """Build kind's configuration.

    Parameters
    ----------
    made
        Whether it is one of `dev.cluster.kind.node`. Such a node has a bridge as its network and
        sees the cluster's folder, in which volumes are made by hand.
    """
    role: dict[str, Any] = {"role": "control-plane", "image": image}
    networking: dict[str, Any] = {"apiServerAddress": "127.0.0.1"}
    patch = f'[plugins."io.containerd.cri.v1.images".registry]\n  config_path = "{HOSTS}"\n'
    if made:
        folder = str(places.folder)
        role["extraMounts"] = [{"hostPath": folder, "containerPath": folder}]
        networking |= {"disableDefaultCNI": True, "kubeProxyMode": "nftables"}
        patch += _registry_settings()
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
    }
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": cluster_name(places.name),
        "nodes": [role],
        "networking": networking,
        "containerdConfigPatches": [patch],
        "kubeadmConfigPatches": [yaml.safe_dump(kubelet)],
    }


def _registry_settings() -> str:
    # Without the capability a Pod fails with "can't get final child's PID from pipe".
    restrict = "false" if may_raise_limits() else "true"
    return f'[plugins."io.containerd.grpc.v1.cri"]\n  restrict_oom_score_adj = {restrict}\n'


class Kind:
    """One cluster of kind, as its programs start it.

    Parameters
    ----------
    built
        Name of a program -> its place, of `programs`.
    """

    def __init__(self, places: Layout, built: Mapping[str, Path], progress: Progress) -> None:
        self._places = places
        self._built = built
        self._progress = progress

    def up(self, known: Record | None) -> Record:
        """Start the cluster.

        Raises
        ------
        LocalClusterError
            When Docker or kind fails.
        """
        places, progress = self._places, self._progress
        if known is not None and runs(places.name):
            return known
        if known is not None:
            down(known)
        taken = {port for other in others(places.name) for port in other.ports.values()}
        record = Record(name=places.name, form=Form.KIND, ports={"registry": free_port(taken)})
        places.make()
        record.save(places.record)
        made = makes_node()
        image = self._node() if made else versions().kind["node_image"]
        registry = self._registry() if made else versions().kind["registry_image"]
        config = configuration(places, image, made=made)
        (places.config / "kind.yaml").write_text(yaml.safe_dump(config))
        for command in self.commands(record, registry):
            progress.say(" ".join([Path(command[0]).name, *command[1:3]]))
            docker.run(command)
        progress.say(
            f"cluster {places.name} (kind) is ready: export KUBECONFIG={places.kubeconfig}"
        )
        return record

    def commands(self, record: Record, registry_image: str) -> list[list[str]]:
        """Return the commands that start the cluster, in order."""
        name, port, places = record.name, record.ports["registry"], self._places
        registry = _registry(name)
        folder = f"{HOSTS}/{record.registry}"
        hosts = f'[host."http://{registry}:5000"]\\n'
        write = f"mkdir -p '{folder}' && printf '{hosts}' > '{folder}/hosts.toml'"
        publish = f"127.0.0.1:{port}:5000"
        return [
            [
                *("docker", "run", "--detach", "--restart=always", "--publish", publish),
                *("--name", registry, "--env", "REGISTRY_STORAGE_DELETE_ENABLED=true"),
                registry_image,
            ],
            [
                *(str(self._built["kind"]), "create", "cluster"),
                *("--config", str(places.config / "kind.yaml")),
                *("--kubeconfig", str(places.kubeconfig), "--wait", "180s"),
            ],
            ["docker", "network", "connect", "kind", registry],
            ["docker", "exec", container(name), "sh", "-c", write],
            # kind waits for the node alone. Without a name server Pods find no registry.
            [
                *("docker", "exec", container(name), "kubectl"),
                *("--kubeconfig", "/etc/kubernetes/admin.conf", "--namespace", "kube-system"),
                *("rollout", "status", "deployment/coredns", "--timeout", "180s"),
            ],
        ]

    def _node(self) -> str:
        """Have Docker know the image of the node, and return its name."""
        if not docker.has_image(node.name()):
            docker.load(node.archive(self._progress))
        return node.name()

    def _registry(self) -> str:
        """Have Docker know the image of the registry, and return its name."""
        config = yaml.safe_dump(REGISTRY_CONFIG).encode()
        image = Image(files={"/registry": self._built["registry"], "/config.yml": config})
        layer = image.layer()
        name = f"cloister-kind-registry:{hashlib.sha256(layer).hexdigest()[:12]}"
        if not docker.has_image(name):
            with tempfile.TemporaryDirectory() as folder:
                root, archive = Path(folder, "layer.tar"), Path(folder, "image.tar")
                root.write_bytes(layer)
                start = {"Entrypoint": ["/registry", "serve", "/config.yml"]}
                docker.write_archive(archive, name, root, start)
                docker.load(archive)
        return name


def runs(name: str) -> bool:
    """Return whether the cluster's node is running."""
    response = docker.run(["docker", "inspect", container(name)], check=False)
    try:
        return bool(json.loads(response)[0]["State"]["Running"])
    except (ValueError, IndexError, KeyError):
        return False


def load(cluster: str, kind: Path, archive: Path) -> None:
    """Put images into the node, as a user of kind does: `kind load image-archive`.

    Parameters
    ----------
    archive
        Images (`dev.cluster.images`).

    Raises
    ------
    LocalClusterError
        When kind fails.
    """
    docker.run([str(kind), "load", "image-archive", str(archive), "--name", cluster])


def down(record: Record) -> None:
    """Remove the cluster and its registry; idempotent.

    The containers are removed by Docker alone, so that nothing is built for it.

    Raises
    ------
    LocalClusterError
        When Docker does not answer.
    """
    if not docker.answers():
        raise LocalClusterError(
            f"cluster {record.name} runs in Docker, which does not answer: start Docker first"
        )
    for each in (container(record.name), _registry(record.name)):
        docker.run(["docker", "rm", "--force", "--volumes", each], check=False)
