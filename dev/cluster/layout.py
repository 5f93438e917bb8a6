"""Where a local cluster keeps its things, and which numbers are its own.

Everything lies in one folder: ``$CLOISTER_STATE/<name>``, by default under
``/var/lib/cloister-dev`` for root (paths of sockets must be short) and ``~/.local/state/cloister``
for others.
"""

import hashlib
import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from dev.cluster.trouble import Trouble

__all__ = ["Layout", "Ports", "find_layout", "make_layout", "state_folder"]

SUBNETS = 64
"""How many clusters can have addresses of their own."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of the components, free when the cluster was made."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int
    kubelet: int
    kubelet_health: int
    proxy_health: int
    proxy_metrics: int
    dns_health: int
    registry: int
    kwok: int


@dataclass(frozen=True, slots=True)
class Layout:
    """One cluster: its folder, addresses and ports."""

    name: str
    """Name of the cluster."""
    folder: Path
    """Its folder."""
    subnet: int
    """Number that its networks are made from."""
    ports: Ports
    """Ports of its components."""
    kind: str
    """``node`` (a real node), ``simulated`` (no Pod really runs) or ``control-plane`` (no node)."""

    @property
    def node_address(self) -> str:
        """Address of the node: the bridge's, which is the gateway of the Pods."""
        return f"10.{100 + self.subnet}.0.1"

    @property
    def pod_network(self) -> str:
        """Network of the Pods."""
        return f"10.{100 + self.subnet}.0.0/24"

    @property
    def service_network(self) -> str:
        """Network of the Services."""
        return f"10.{180 + self.subnet}.0.0/24"

    @property
    def service_address(self) -> str:
        """Address of the Service ``kubernetes``."""
        return f"10.{180 + self.subnet}.0.1"

    @property
    def bridge(self) -> str:
        """Name of the bridge that the Pods are plugged into (at most 15 characters)."""
        return f"cl-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"

    @property
    def node(self) -> str:
        """Name of the node."""
        return f"{self.name}-node"

    @property
    def api_address(self) -> str:
        """Address of the API server: the bridge's where Pods must reach it, else the loopback."""
        return self.node_address if self.kind == "node" else "127.0.0.1"

    @property
    def api_url(self) -> str:
        """Base address of the API server."""
        return f"https://{self.api_address}:{self.ports.apiserver}"

    @property
    def registry(self) -> str:
        """Host and port of the registry, as image references name it."""
        return f"127.0.0.1:{self.ports.registry}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    def path(self, *parts: str) -> Path:
        """Answer a path in the cluster's folder."""
        return self.folder.joinpath(*parts)

    def save(self) -> None:
        """Write the numbers down, for later runs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        record = {"subnet": self.subnet, "kind": self.kind, "ports": asdict(self.ports)}
        self.path("cluster.json").write_text(json.dumps(record, indent=2))


def state_folder() -> Path:
    """Answer the folder of all local clusters."""
    if os.environ.get("CLOISTER_STATE"):
        return Path(os.environ["CLOISTER_STATE"])
    if os.geteuid() == 0:
        return Path("/var/lib/cloister-dev")
    return Path.home() / ".local" / "state" / "cloister"


def find_layout(name: str) -> Layout | None:
    """Read what an earlier run wrote down; None when there is no such cluster."""
    folder = state_folder() / name
    try:
        record = json.loads((folder / "cluster.json").read_text())
        return Layout(name, folder, record["subnet"], Ports(**record["ports"]), record["kind"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def make_layout(name: str, kind: str) -> Layout:
    """Choose addresses and free ports for a new cluster and write them down.

    Raises
    ------
    Trouble
        When the name cannot be used, or no network is left.
    """
    if not name.isascii() or not name.replace("-", "").isalnum() or len(name) > 40:  # noqa: PLR2004 - the folder's path must stay short
        raise Trouble(
            f"{name!r} is no name for a cluster; use letters, digits and hyphens, at most 40"
        )
    others = [path.parent.name for path in state_folder().glob("*/cluster.json")]
    taken = {layout.subnet for other in others if (layout := find_layout(other))}
    free = [number for number in range(SUBNETS) if number not in taken]
    if not free:
        raise Trouble(
            f"{SUBNETS} clusters exist already; end one with `python -m dev.cluster down`"
        )
    layout = Layout(name, state_folder() / name, free[0], _free_ports(), kind)
    layout.save()
    return layout


def _free_ports() -> Ports:
    names = Ports.__dataclass_fields__
    sockets = [socket.socket() for _ in names]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return Ports(*(each.getsockname()[1] for each in sockets))
    finally:
        for each in sockets:
            each.close()
