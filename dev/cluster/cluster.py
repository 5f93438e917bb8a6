"""A cluster that was brought up: what its users hold in their hands.

`dev.cluster.lifecycle` makes and finds it; nothing here starts or ends it.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from dev.cluster import binaries, kind
from dev.cluster.errors import LocalClusterError
from dev.cluster.layout import Form, Layout, Record
from dev.cluster.processes import Processes

__all__ = ["COMPONENTS", "Cluster", "KubectlError"]

COMPONENTS = (
    *("kwok", "kubelet", "kube-proxy", "containerd", "coredns", "kube-scheduler"),
    *("kube-controller-manager", "kube-apiserver", "etcd", "registry-node", "registry"),
)
"""In the order of their end."""


class KubectlError(LocalClusterError, subprocess.CalledProcessError):
    """A call of kubectl failed; `stderr` holds what it said, and so does the message."""

    def __init__(self, done: "subprocess.CompletedProcess[str]") -> None:
        subprocess.CalledProcessError.__init__(
            self, done.returncode, ["kubectl", *done.args[2:]], done.stdout, done.stderr
        )

    @override
    def __str__(self) -> str:
        return f"{' '.join(self.cmd)}: {self.stderr.strip()}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that runs, or that ran before a part of it ended."""

    layout: Layout
    record: Record

    @property
    def name(self) -> str:
        """Its name."""
        return self.record.name

    @property
    def form(self) -> Form:
        """What kind of cluster it is."""
        return self.record.form

    @property
    def has_node(self) -> bool:
        """Whether Pods really run on it."""
        return self.form in {Form.NODE, Form.KIND}

    @property
    def node_name(self) -> str | None:
        """Name of its node, pretended or not; None where there is none."""
        if self.form is Form.KIND:
            return f"cloister-{self.name}-control-plane"
        return None if self.form is Form.CONTROL_PLANE else self.name

    @property
    def kubeconfig(self) -> Path:
        """Its administrator's kubeconfig, complete in one file."""
        return self.layout.kubeconfig

    @property
    def registry(self) -> str:
        """Host and port of its registry, as image references name it; plain HTTP."""
        return self.record.registry

    @property
    def state_dir(self) -> Path:
        """Folder of all that belongs to it."""
        return self.layout.folder

    @property
    def logs_dir(self) -> Path:
        """One log file per component."""
        return self.layout.logs

    @property
    def host_address(self) -> str:
        """Address by which Pods reach programs on this machine; loopback without a node."""
        return self.record.host_address

    @property
    def resolvers(self) -> list[str]:
        """Name servers that Pods may query and no Service represents; none on kind."""
        return [] if self.form is Form.KIND else [self.record.host_address]

    @property
    def processes(self) -> Processes:
        """Its processes, with their logs."""
        return Processes(self.layout.processes, self.layout.logs)

    @property
    def components(self) -> dict[str, int | None]:
        """Component -> its process id; None where it ended."""
        known = [name for name in COMPONENTS if (self.layout.logs / f"{name}.log").exists()]
        return {name: self.processes.pid(name) for name in known}

    @property
    def running(self) -> bool:
        """Whether all its processes run."""
        if self.form is Form.KIND:
            return kind.runs(self.name)
        return bool(self.components) and all(self.components.values())

    def bin(self, name: str) -> Path:
        """Return the place of a program, built now if it never was.

        Parameters
        ----------
        name
            Such as ``kubectl`` or ``caddy``; ``versions.toml`` lists them.

        Raises
        ------
        LocalClusterError
            When it cannot be built.
        """
        return binaries.ensure([name])[name]

    def kubectl(
        self,
        *arguments: str,
        stdin: str | None = None,
        check: bool = True,
        timeout: float | None = None,
    ) -> str:
        """Run kubectl as the administrator.

        Parameters
        ----------
        arguments
            Its arguments.
        stdin
            What it reads.
        check
            Whether a failure is an error.
        timeout
            Seconds until it is ended; None = never.

        Returns
        -------
        str
            What it wrote; without ``check`` also what it wrote to stderr.

        Raises
        ------
        KubectlError
            When it fails and ``check`` is set.
        """
        done = subprocess.run(
            [str(self.bin("kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if not check:
            return done.stdout + done.stderr
        if done.returncode != 0:
            raise KubectlError(done)
        return done.stdout
