"""The cluster in Docker containers, by kind, where Docker is available.

Only the generated configuration is tested here: the machines of continuous integration have no
Docker. The registry follows kind's page "Local Registry".
"""

import json
import subprocess
from typing import Any

import yaml

from dev.cluster.errors import LocalClusterError
from dev.cluster.layout import Form, Layout, Record, free_port, others
from dev.cluster.progress import Progress
from dev.cluster.versions import load

__all__ = [
    "commands",
    "configuration",
    "down",
    "host_address",
    "pod_registry",
    "runs",
    "up",
]

HOSTS = "/etc/containerd/certs.d"
"""Where containerd in a kind node looks for registries."""


def _cluster(name: str) -> str:
    return f"cloister-{name}"


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
    (network,) = json.loads(_run(["docker", "network", "inspect", "kind"]))
    for each in network["IPAM"]["Config"]:
        if "." in each.get("Gateway", ""):
            return str(each["Gateway"])
    raise LocalClusterError("Docker's network kind has no gateway of IPv4; remove the network")


def configuration(name: str) -> dict[str, Any]:
    """Build kind's configuration."""
    patch = f'[plugins."io.containerd.cri.v1.images".registry]\n  config_path = "{HOSTS}"\n'
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": _cluster(name),
        "nodes": [{"role": "control-plane", "image": load().kind["node_image"]}],
        "networking": {"apiServerAddress": "127.0.0.1"},
        "containerdConfigPatches": [patch],
    }


def commands(places: Layout, record: Record) -> list[list[str]]:
    """Return the commands that start the cluster, in order."""
    name, port = record.name, record.ports["registry"]
    registry = _registry(name)
    folder = f"{HOSTS}/{record.registry}"
    hosts = f'[host."http://{registry}:5000"]\\n'
    write = f"mkdir -p '{folder}' && printf '{hosts}' > '{folder}/hosts.toml'"
    publish = f"127.0.0.1:{port}:5000"
    return [
        [
            *("docker", "run", "--detach", "--restart=always", "--publish", publish),
            *("--name", registry, "--env", "REGISTRY_STORAGE_DELETE_ENABLED=true"),
            load().kind["registry_image"],
        ],
        [
            *("kind", "create", "cluster", "--config", str(places.config / "kind.yaml")),
            *("--kubeconfig", str(places.kubeconfig), "--wait", "180s"),
        ],
        ["docker", "network", "connect", "kind", registry],
        ["docker", "exec", f"{_cluster(name)}-control-plane", "sh", "-c", write],
    ]


def runs(name: str) -> bool:
    """Return whether the cluster's node is running."""
    container = f"{_cluster(name)}-control-plane"
    response = _run(["docker", "inspect", container], check=False)
    try:
        return bool(json.loads(response)[0]["State"]["Running"])
    except (ValueError, IndexError, KeyError):
        return False


def up(places: Layout, known: Record | None, progress: Progress) -> Record:
    """Start the cluster.

    Raises
    ------
    LocalClusterError
        When Docker or kind fails.
    """
    if known is not None and runs(places.name):
        return known
    if known is not None:
        down(known)
    taken = {port for other in others(places.name) for port in other.ports.values()}
    record = Record(name=places.name, form=Form.KIND, ports={"registry": free_port(taken)})
    places.make()
    record.save(places.record)
    (places.config / "kind.yaml").write_text(yaml.safe_dump(configuration(places.name)))
    for command in commands(places, record):
        progress.say(" ".join(command[:3]))
        _run(command)
    progress.say(f"cluster {places.name} (kind) is ready: export KUBECONFIG={places.kubeconfig}")
    return record


def down(record: Record) -> None:
    """Remove the cluster and its registry; idempotent."""
    _run(["kind", "delete", "cluster", "--name", _cluster(record.name)], check=False)
    _run(["docker", "rm", "--force", "--volumes", _registry(record.name)], check=False)


def _run(command: list[str], *, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise LocalClusterError(f"{' '.join(command)} failed: {done.stderr.strip()[-800:]}")
    return done.stdout
