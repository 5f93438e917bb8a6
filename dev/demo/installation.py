"""The demo's installation of Cloister: CRDs, settings, operator and API on a local cluster."""

import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dev.cluster import Cluster, LocalClusterError
from dev.cluster.images import guest_image, push, shim_image
from dev.cluster.processes import Processes, wait_until

__all__ = ["CONTAINERS_DOMAIN", "DemoInstallation"]

MANIFESTS = Path(__file__).parents[2] / "crds" / "manifests"
CONTAINERS_DOMAIN = "containers.example.com"
"""Domain of the generated host names; it needs no DNS here."""
SYSTEM_NAMESPACE = "cloister-system"
TOKEN_HOURS = 720
"""Lifetime of the programs' tokens: longer than a demo is left running."""
PATIENCE = 60.0
"""Seconds that a program may take to become ready on a busy machine."""


@dataclass(frozen=True, slots=True)
class DemoInstallation:
    """Cloister on a cluster, with its files in one folder."""

    cluster: Cluster
    """Its cluster."""
    folder: Path
    """Its settings, ledger, repositories, and the records of its processes."""

    @property
    def repositories(self) -> Path:
        """Folder of the git repositories; the base of the source provider."""
        return self.folder / "repositories"

    @property
    def authority(self) -> Path:
        """CA certificate for clients of enclaves; the API creates it at its first start."""
        return self.folder / "ca.pem"

    @property
    def processes(self) -> Processes:
        """Operator and API."""
        return Processes(self.folder / "processes", self.folder / "logs")

    def install(self) -> None:
        """Apply CRDs, roles and policies, and write settings; idempotent."""
        kubectl = self.cluster.kubectl
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": SYSTEM_NAMESPACE},
        }
        self.apply(namespace)
        for part in ("crds", "roles", "policies"):
            kubectl("apply", "--server-side", "--force-conflicts", "-f", str(MANIFESTS / part))
        crds = str(MANIFESTS / "crds")
        kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", crds)
        for account in ("operator", "api"):
            self._write_kubeconfig(account)
        registry = self.cluster.registry
        images = {
            "shimImage": push(shim_image(), registry, "cloister/shim"),
            "guestImage": push(guest_image(), registry, "cloister/guest"),
        }
        network = {"enclaveNetwork": {"resolvers": self.cluster.resolvers}}
        self.repositories.mkdir(parents=True, exist_ok=True)
        host, port = self.cluster.host_address, self._port()
        way = {"apiAddress": f"http://{host}:{port}", "signedCertificates": True}
        self._write("operator.yaml", self._shared("operator") | images | network | way)
        self._write(
            "api.yaml",
            self._shared("api")
            | {
                "listen": {"host": host, "port": port},
                "ledger": {"path": "ledger.sqlite", "keyMaterial": "key-material"},
                "certificates": {
                    "issuer": "own",
                    "own": {"certificate": "ca.pem", "key": "ca.key"},
                },
                "development": True,
            },
        )

    def uninstall_policies(self, namespace: str) -> None:
        """Remove the admission policies, which would restrict other users of the cluster.

        The API server still applies them for some seconds; wait until it does not.

        Parameters
        ----------
        namespace
            Namespace of an organization, in which the policies restrict even administrators.

        Raises
        ------
        LocalClusterError
            When they are still applied after a minute.
        """
        folder = str(MANIFESTS / "policies")
        self.cluster.kubectl("delete", "--ignore-not-found", "--timeout=60s", "-f", folder)
        attempt = ("create", "service", "clusterip", "probe", "--tcp=80", "--dry-run=server")

        def free() -> bool:
            said = self.cluster.kubectl(*attempt, "-n", namespace, check=False)
            return "created (server dry run)" in said

        if not wait_until(free, within=PATIENCE):
            raise LocalClusterError(
                "the API server still applies the deleted admission policies after a minute"
            )

    def start(self) -> str:
        """Start operator and API unless they are running.

        Raises
        ------
        LocalClusterError
            When one of them is not ready in time; with the last lines of its log.
        """
        for name in ("operator", "api"):
            command = [_cloister(), name, "--config", self.folder / f"{name}.yaml"]
            self.processes.start(name, command)
        self.processes.await_ready("api", lambda: self.address() is not None, within=PATIENCE)
        address = self.address()
        assert address is not None
        return address

    def address(self) -> str | None:
        """Return the API's base address; None until it listens."""
        log = self.processes.logs / "api.log"
        found = re.findall(r"listening on (http://\S+)", log.read_text()) if log.exists() else []
        return found[-1] if found else None

    def stop(self) -> None:
        """Stop operator and API."""
        for name in ("api", "operator"):
            self.processes.stop(name)

    def run(self, *arguments: str) -> str:
        """Run a ``cloister`` command and return its output.

        Raises
        ------
        LocalClusterError
            When it fails; with its error output.
        """
        done = subprocess.run(
            [_cloister(), *arguments], check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise LocalClusterError(f"`cloister {' '.join(arguments)}` failed:\n{done.stderr}")
        return done.stdout

    def apply(self, manifest: dict[str, Any]) -> None:
        """Apply one object as ``kubectl apply`` does."""
        self.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(manifest))

    def await_namespace(self, name: str) -> None:
        """Wait until the operator has made an organization's namespace.

        Raises
        ------
        LocalClusterError
            When it does not exist in time; with the last lines of the operator's log.
        """
        found = wait_until(
            lambda: bool(
                self.cluster.kubectl("get", "namespace", name, "--ignore-not-found", "-oname")
            ),
            within=PATIENCE,
        )
        if not found:
            log = self.processes.log_tail("operator")
            raise LocalClusterError(
                f"the operator did not create namespace {name}; its log:\n{log}"
            )

    def _write_kubeconfig(self, account: str) -> None:
        """Write the kubeconfig of a program, with a token of its service account."""
        document = yaml.safe_load(self.cluster.kubeconfig.read_text())
        token = self.cluster.kubectl(
            *("create", "token", f"cloister-{account}", "-n", SYSTEM_NAMESPACE),
            f"--duration={TOKEN_HOURS}h",
        )
        document["users"][0]["user"] = {"token": token.strip()}
        path = self.folder / f"{account}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(document))

    def _port(self) -> int:
        """Return the API's port: the one of an earlier run, or a free one.

        It must be known before the API listens, since enclaves are given its address.
        """
        path = self.folder / "api.yaml"
        before = yaml.safe_load(path.read_text())["listen"]["port"] if path.exists() else 0
        if before:
            return int(before)
        with socket.create_server((self.cluster.host_address, 0)) as probe:
            return int(probe.getsockname()[1])

    def _shared(self, account: str) -> dict[str, Any]:
        registry = self.cluster.registry
        return {
            "containersDomain": CONTAINERS_DOMAIN,
            "kubeconfig": str(self.folder / f"{account}.kubeconfig"),
            "sources": {"kind": "git", "base": str(self.repositories)},
            "registry": {"allowPrivate": [registry], "plainHttp": [registry]},
        }

    def _write(self, name: str, settings: dict[str, Any]) -> None:
        (self.folder / name).write_text(yaml.safe_dump(settings, sort_keys=False))


def _cloister() -> str:
    return str(Path(sys.executable).parent / "cloister")
