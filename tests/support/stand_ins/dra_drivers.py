"""A stand-in for a driver of Dynamic Resource Allocation on a real node: GPUs that do not exist.

The program in ``tests/support/stand_ins/dra_driver`` registers with the kubelet by Kubernetes' own
library for drivers, and describes its devices to containerd by CDI (Container Device Interface).
"""

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import IO

import yaml

from dev.cluster import Cluster
from dev.cluster.binaries import environment
from tests.support.waiting import until_sync

__all__ = ["DraDriver"]

MODULE = Path(__file__).with_name("dra_driver")
"""The Go module of the program."""
CDI = Path("/var/run/cdi")
"""Where containerd looks for devices by default."""


class DraDriver:
    """A running driver and its DeviceClass, both of one name."""

    def __init__(self, folder: Path, cluster: Cluster, name: str, path: str, count: int) -> None:
        """Start it, and wait until its devices are published.

        Parameters
        ----------
        path
            What the path of a device file begins with; its number follows.
        count
            Device files to create on the node: copies of the kernel's /dev/zero.
        """
        self.cluster, self.name = cluster, name
        self.devices = [Path(f"{path}{number}") for number in range(count)]
        for each in self.devices:
            each.unlink(missing_ok=True)
            os.mknod(each, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
            each.chmod(0o666)
        program = folder / "dra-driver"
        build = ["go", "build", "-trimpath", "-buildvcs=false", "-o", str(program), "."]
        subprocess.run(build, cwd=MODULE, env=environment(), check=True, timeout=900)
        selector = {"cel": {"expression": f"device.driver == '{name}'"}}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": [selector]},
        }
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(body))
        self.log: IO[bytes] = (folder / "dra-driver.log").open("wb")
        (node,) = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
        options = {
            "name": name,
            "node": node["metadata"]["name"],
            "kubelet": cluster.layout.data / "kubelet",
            "kubeconfig": cluster.kubeconfig,
            "cdi": CDI,
            "path": path,
            "count": count,
        }
        command = [str(program), *(f"-{option}={value}" for option, value in options.items())]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        until_sync(self.published, every=0.5, what=f"devices of {name}")

    def published(self) -> bool:
        """Return whether the scheduler can see its devices."""
        slices = json.loads(self.cluster.kubectl("get", "resourceslices", "-o", "json"))["items"]
        own = [each for each in slices if each["spec"]["driver"] == self.name]
        return sum(len(each["spec"]["devices"]) for each in own) == len(self.devices)

    def prepared(self) -> list[str]:
        """Return the uids of claims whose devices containers have."""
        files = CDI.glob(f"{self.name}-*.json")
        return sorted(each.stem.removeprefix(f"{self.name}-") for each in files)

    def end(self) -> None:
        """Stop it, and remove what it left."""
        self.process.terminate()
        self.process.wait(30)
        self.log.close()
        self.cluster.kubectl("delete", "deviceclass", self.name, "--ignore-not-found")
        selector = f"--field-selector=spec.driver={self.name}"
        self.cluster.kubectl("delete", "resourceslices", selector)
        for each in (*self.devices, *CDI.glob(f"{self.name}-*.json")):
            each.unlink(missing_ok=True)
