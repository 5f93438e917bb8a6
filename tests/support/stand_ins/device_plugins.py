"""Stand-ins for device plugins on a real node: GPUs and devices that do not exist.

The program in ``tests/support/stand_ins/device_plugin`` implements the kubelet's protocol over its
socket.
"""

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import IO, Any

from dev.cluster import Cluster
from dev.cluster.binaries import environment
from tests.support.waiting import until_sync

__all__ = ["DevicePlugin", "build_plugin"]

MODULE = Path(__file__).with_name("device_plugin")
"""The Go module of the program."""


def build_plugin(folder: Path) -> Path:
    """Build the program."""
    program = folder / "device-plugin"
    command = ["go", "build", "-trimpath", "-buildvcs=false", "-o", str(program), "."]
    subprocess.run(command, cwd=MODULE, env=environment(), check=True, timeout=900)
    return program


class DevicePlugin:
    """One running plugin."""

    def __init__(
        self, program: Path, cluster: Cluster, resource: str, devices: list[str], *options: str
    ) -> None:
        """Start it, and wait until the node has its devices.

        Parameters
        ----------
        resource
            Name of the extended resource.
        devices
            Device files to create on the node: copies of the kernel's /dev/zero.
        """
        self.cluster = cluster
        self.resource = resource
        self.devices = [Path(each) for each in devices]
        for each in self.devices:
            each.unlink(missing_ok=True)
            os.mknod(each, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
            each.chmod(0o666)
        registry = cluster.layout.data / "kubelet" / "plugins_registry"
        self.log: IO[bytes] = (program.parent / f"{resource.replace('/', '-')}.log").open("wb")
        command = [str(program), "-registry", str(registry), "-resource", resource, *options]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        until_sync(self.offered, every=0.5, what=f"{resource} on the node")

    def offered(self) -> bool:
        """Return whether the node has any of its devices."""
        (node,) = self._nodes()
        return int(node["status"]["allocatable"].get(self.resource, "0")) > 0

    def end(self) -> None:
        """Stop it, and remove its device files."""
        self.process.terminate()
        self.process.wait(30)
        self.log.close()
        for each in self.devices:
            each.unlink(missing_ok=True)

    def _nodes(self) -> list[dict[str, Any]]:
        """Return the nodes of the cluster."""
        found: list[dict[str, Any]] = json.loads(
            self.cluster.kubectl("get", "nodes", "-o", "json")
        )["items"]
        return found
