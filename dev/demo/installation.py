"""The demo's installation: the chart on a local cluster, and a git server beside it."""

import json
import socket
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dev.chart.local import LocalInstallation, push_images
from dev.cluster import Cluster, LocalClusterError
from dev.cluster.layout import free_port, port_is_free
from dev.cluster.processes import Processes, fingerprint, wait_until
from dev.images.local import LocalImages

ROOT = Path(__file__).resolve().parents[2]
GIT = "git"
"""Name of the git server's process."""
PATIENCE = 180.0
"""Seconds that something may take on a busy machine."""


def _processes(folder: Path) -> Processes:
    return Processes(folder / "processes", folder / "logs")


def stop(folder: Path) -> None:
    """Stop the git server; idempotent."""
    if folder.exists():
        _processes(folder).stop(GIT)


@dataclass(frozen=True)
class DemoInstallation:
    """Cloister on a cluster, with the demo's files in one folder."""

    cluster: Cluster
    images: LocalImages
    folder: Path
    """Its values, ledger and repositories, and the record of its git server."""

    @property
    def repositories(self) -> Path:
        """Folder of the git repositories."""
        return self.folder / "repositories"

    @property
    def authority(self) -> Path:
        """CA certificate for clients of enclaves; it exists once the chart is installed."""
        return self.folder / "ca.pem"

    @cached_property
    def release(self) -> LocalInstallation:
        """The chart on this cluster; the images are pushed for it.

        Raises
        ------
        ImageError, LocalClusterError
            When they cannot be pushed, or the chart cannot be packaged.
        """
        chart = push_images(self.images, self.cluster, self.folder)
        return LocalInstallation(self.cluster, self.folder, chart, self.git)

    @cached_property
    def git(self) -> str:
        """Host and port of the git server, which runs from then on.

        Raises
        ------
        LocalClusterError
            When it does not start.
        """
        return self._serve_git()

    def install(self) -> None:
        """Install or upgrade; idempotent.

        Raises
        ------
        ImageError, LocalClusterError
            When a step fails.
        """
        self.release.install()
        self.authority.write_text(self.release.authority())

    def await_namespace(self, name: str) -> None:
        """Wait until the operator has made an organization's namespace.

        Raises
        ------
        LocalClusterError
            When it does not exist in time; with the last lines of the logs.
        """
        get = ("get", "namespace", name, "--ignore-not-found", "-oname")
        if not wait_until(lambda: bool(self.cluster.kubectl(*get)), within=PATIENCE):
            raise LocalClusterError(
                f"the operator did not create namespace {name}\n{self.release.state()}"
            )

    def _serve_git(self) -> str:
        """Serve the repositories unless that is done already, and return host and port."""
        self.repositories.mkdir(parents=True, exist_ok=True)
        address, port = self._address()
        command = [
            *(sys.executable, "-m", "dev.demo.git_server"),
            *("--address", address, "--port", str(port), str(self.repositories)),
        ]
        environment = {"PYTHONPATH": str(ROOT)}
        processes, mark = _processes(self.folder), fingerprint(command, environment)
        if not processes.is_current(GIT, mark):
            processes.stop(GIT)
            processes.start(GIT, command, env=environment, mark=mark)
        processes.await_ready(GIT, lambda: _listens(address, port), within=PATIENCE)
        return f"{address}:{port}"

    def _address(self) -> tuple[str, int]:
        """Return where git is served: as in an earlier run, if that is possible."""
        path, address = self.folder / "git.json", self.cluster.host_address
        if path.exists():
            before = json.loads(path.read_text())
            mine = _processes(self.folder).is_running(GIT)
            if before["address"] == address and (mine or port_is_free(address, before["port"])):
                return address, int(before["port"])
        port = free_port(set(self.cluster.record.ports.values()))
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps({"address": address, "port": port}))
        scratch.replace(path)
        return address, port


def _listens(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=5):
            return True
    except OSError:
        return False
