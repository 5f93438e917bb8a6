"""A cluster that was started: the handle for its users.

`dev.cluster.lifecycle` creates and finds it; nothing here starts or stops it.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from dev.cluster import binaries, kind
from dev.cluster.layout import Form, Layout, LocalClusterError, Record
from dev.cluster.processes import Processes

COMPONENTS = (
    *("kwok", "metrics-server", "kubelet", "kube-proxy", "containerd", "coredns", "kube-scheduler"),
    *("kube-controller-manager", "kube-apiserver", "etcd", "registry-node", "registry"),
)
"""In the order in which they are stopped."""


class KubectlError(LocalClusterError, subprocess.CalledProcessError):
    """A call of kubectl failed; `stderr` and the message hold its error output."""

    def __init__(self, done: "subprocess.CompletedProcess[str]") -> None:
        subprocess.CalledProcessError.__init__(
            self, done.returncode, ["kubectl", *done.args[2:]], done.stdout, done.stderr
        )

    @override
    def __str__(self) -> str:
        return f"{' '.join(self.cmd)}: {self.stderr.strip()}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that is running, or was until some of its processes exited."""

    layout: Layout
    record: Record

    @property
    def name(self) -> str:
        """Its name."""
        return self.record.name

    @property
    def form(self) -> Form:
        """Its kind."""
        return self.record.form

    @property
    def has_node(self) -> bool:
        """Whether Pods really run on it."""
        return self.form in {Form.NODE, Form.KIND}

    @property
    def node_name(self) -> str | None:
        """Name of its node, real or simulated; None = it has none."""
        if self.form is Form.KIND:
            return kind.container(self.name)
        return None if self.form is Form.CONTROL_PLANE else self.name

    @property
    def kubeconfig(self) -> Path:
        """Its administrator's kubeconfig, self-contained."""
        return self.layout.kubeconfig

    @property
    def registry(self) -> str:
        """Host and port of its registry, as image references name it; plain HTTP."""
        return self.record.registry

    @property
    def state_dir(self) -> Path:
        """Folder of all its files."""
        return self.layout.folder

    @property
    def logs_dir(self) -> Path:
        """One log file per component."""
        return self.layout.logs

    @property
    def pod_registry(self) -> str:
        """Host and port at which Pods reach the registry."""
        if self.form is Form.KIND:
            return kind.pod_registry(self.name)
        return f"{self.record.host_address}:{self.record.ports['registry']}"

    @property
    def audit_log(self) -> Path:
        """What its API server recorded; a simulated or audited cluster has it."""
        return self.layout.audit_log

    @property
    def host_address(self) -> str:
        """Address at which Pods reach programs on this machine; loopback without a node.

        Raises
        ------
        LocalClusterError
            When Docker does not say it.
        """
        return kind.host_address() if self.form is Form.KIND else self.record.host_address

    @property
    def resolvers(self) -> list[str]:
        """Name servers that Pods may query outside of any Service; none on kind."""
        return [] if self.form is Form.KIND else [self.record.host_address]

    @property
    def processes(self) -> Processes:
        """Its processes, with their logs."""
        return Processes(self.layout.processes, self.layout.logs)

    @property
    def components(self) -> dict[str, int | None]:
        """Component -> its process id; None = it is not running."""
        known = [name for name in COMPONENTS if (self.layout.logs / f"{name}.log").exists()]
        return {name: self.processes.pid(name) for name in known}

    @property
    def running(self) -> bool:
        """Whether all its processes are running."""
        if self.form is Form.KIND:
            return kind.runs(self.name)
        return bool(self.components) and all(self.components.values())

    def bin(self, name: str) -> Path:
        """Return the path of a program; build it when it is missing.

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
        timeout
            Timeout in seconds; None = none.

        Returns
        -------
        str
            Its output; without ``check`` including stderr.

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
