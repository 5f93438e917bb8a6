"""The one error of the local cluster."""

import fcntl
import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from random import SystemRandom


class LocalClusterError(Exception):
    """Why the local cluster cannot do what was requested, and the remedy."""


DEFAULT_NAME = "cloister"

PACKAGES = "packages_"
"""Name of the lock that is held while packages are installed; no cluster can have this name."""

NODE_IMAGE = "kind_"
"""Name of the lock that is held while the image of kind's node is made."""

PORTS = range(20000, 32000)
"""Below the ephemeral ports of outgoing connections, so that a port
stays free while its cluster is down."""


class Form(StrEnum):
    """The kind of a cluster."""

    NODE = "node"
    """Control plane and a real node: Pods really run."""
    CONTROL_PLANE = "control-plane"
    """API server, etcd, controllers, registry; no node and no scheduler."""
    SIMULATED = "simulated"
    """The control plane and a simulated node."""
    KIND = "kind"
    """In Docker containers, by kind."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one cluster."""

    name: str
    folder: Path

    @property
    def record(self) -> Path:
        """The record of the cluster."""
        return self.folder / "cluster.json"

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.folder / "pki"

    @property
    def config(self) -> Path:
        """Configuration files of the components."""
        return self.folder / "config"

    @property
    def data(self) -> Path:
        """Data of etcd and of the registry."""
        return self.folder / "data"

    @property
    def logs(self) -> Path:
        """One log per component."""
        return self.folder / "logs"

    @property
    def audit_log(self) -> Path:
        """Requests to the API server, one JSON object a line; of a simulated or audited cluster."""
        return self.data / "audit.log"

    @property
    def processes(self) -> Path:
        """One record per process."""
        return self.folder / "processes"

    @property
    def sockets(self) -> Path:
        """Unix sockets; a short path, since the kernel allows 107 bytes."""
        return self.folder / "run"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    def make(self) -> None:
        """Create the folders, unreadable for others since they hold keys."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o711 if os.geteuid() == 0 else 0o700)
        for folder in (self.pki, self.config, self.data, self.logs, self.processes, self.sockets):
            folder.mkdir(exist_ok=True)
            # User namespaces of Pods must be able to traverse run/ and data/.
            folder.chmod(0o700 if folder in {self.pki, self.config} else 0o711)


@dataclass(slots=True)
class Record:
    """The record of a cluster between two runs."""

    name: str
    form: Form
    index: int = -1
    """Number of the cluster's address ranges; -1 = it has none."""
    ports: dict[str, int] = field(default_factory=dict)
    """Purpose -> port."""
    kubernetes: str = ""
    """Minor release of its API server, such as ``1.35``; "" = that of all other parts."""
    audited: bool = False
    """Whether the API server records what the accounts of Cloister request."""

    @property
    def host_address(self) -> str:
        """Address of this machine on the cluster's link, or loopback without a link."""
        return f"10.201.{self.index}.1" if self.index >= 0 else "127.0.0.1"

    @property
    def node_address(self) -> str:
        """Address of the node."""
        return f"10.201.{self.index}.2"

    @property
    def link_range(self) -> str:
        """Address range of the link between this machine and the node."""
        return f"10.201.{self.index}.0/24"

    @property
    def pod_range(self) -> str:
        """Address range of the Pods."""
        return f"10.202.{max(self.index, 0)}.0/24"

    @property
    def service_range(self) -> str:
        """Address range of the Services; large without a link, since nothing routes to it."""
        return f"10.203.{self.index}.0/24" if self.index >= 0 else "10.203.0.0/16"

    @property
    def service_address(self) -> str:
        """Address of the API server's Service, the first one of the range."""
        return f"10.203.{max(self.index, 0)}.1"

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{self.host_address}:{self.ports['apiserver']}"

    @property
    def registry(self) -> str:
        """Host and port of the registry, as image references name it."""
        return f"127.0.0.1:{self.ports['registry']}"

    def save(self, path: Path) -> None:
        """Write it atomically."""
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps(asdict(self), indent=2) + "\n")
        scratch.rename(path)

    @classmethod
    def read(cls, path: Path) -> "Record | None":
        """Read it.

        Returns
        -------
        Record or None
            None = there is none, or a run was interrupted before it was written.
        """
        try:
            content = json.loads(path.read_text())
            return cls(
                name=content["name"],
                form=Form(content["form"]),
                index=content["index"],
                ports=content["ports"],
                kubernetes=content.get("kubernetes", ""),
                audited=content.get("audited", False),
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None


def state_folder() -> Path:
    """Return the folder of all clusters of this user."""
    chosen = os.environ.get("CLOISTER_STATE")
    if chosen:
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/var/lib/cloister-dev")
    return Path.home() / ".local" / "state" / "cloister"


def layout(name: str) -> Layout:
    """Return the paths of a cluster.

    Raises
    ------
    LocalClusterError
        When the name is invalid, or the paths of its sockets would be too long.
    """
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,22}[a-z0-9])?", name):
        raise LocalClusterError(
            f"cluster name {name!r}: at most 24 of a-z, 0-9 and '-', beginning with a letter "
            "and not ending with '-'"
        )
    folder = state_folder() / name
    if len(str(folder)) > 60:  # noqa: PLR2004 - 107 bytes of a socket's path, less what is below
        raise LocalClusterError(
            f"the state folder {folder} is too deep for unix sockets; "
            "set CLOISTER_STATE to a shorter one"
        )
    return Layout(name=name, folder=folder)


def names() -> list[str]:
    """List the clusters of this user, running or not."""
    if not state_folder().is_dir():
        return []
    return sorted(path.parent.name for path in state_folder().glob("*/cluster.json"))


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold the lock of a cluster, so that only one run works on it.

    Parameters
    ----------
    name
        Name of the cluster; "" locks the choice of address ranges, `PACKAGES` the installation of
        packages.

    Yields
    ------
    None
        While the lock is held.
    """
    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{name or 'addresses'}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def others(name: str) -> list[Record]:
    """Read the records of all clusters but one."""
    found = [Record.read(layout(other).record) for other in names() if other != name]
    return [record for record in found if record is not None]


def free_port(taken: set[int]) -> int:
    """Choose a port that no process listens on and no other cluster has recorded.

    Raises
    ------
    LocalClusterError
        When none was found.
    """
    candidates = [port for port in PORTS if port not in taken]
    SystemRandom().shuffle(candidates)
    for port in candidates:
        if port_is_free("127.0.0.1", port):
            return port
    raise LocalClusterError(f"no free port found between {PORTS.start} and {PORTS.stop}")


def port_is_free(address: str, port: int) -> bool:
    """Return whether a port is free to listen on."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
