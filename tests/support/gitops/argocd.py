"""Argo CD: application controller, repository server and API server as processes of this machine.

They are one program, started under three names, with Debian's redis-server as their store. The
configuration is what Argo CD's own manifests install, in the namespace ``argocd``; the API server
asks nobody who they are, since it listens on the loopback alone. The application controller, whose
metrics have every address, has a loopback of its own. There is no Dex and no notification
controller.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from cloister_clients.kube import KindRef
from dev.cluster import Cluster
from dev.cluster.binaries import binary
from dev.cluster.processes import Progress
from dev.cluster.requirements import install_packages
from dev.plain_http import NO_TRUST
from tests.support.cluster.direct_client import DirectClient
from tests.support.gitops.apart import apart
from tests.support.gitops.program import SHOWN, apply_crds, module_files, run_program
from tests.support.ports import free_port
from tests.support.waiting import until_sync

__all__ = ["APPLICATION", "NAMESPACE", "ArgoCD", "argocd_on"]

APPLICATION = KindRef("argoproj.io", "v1alpha1", "applications", "Application")
NAMESPACE = "argocd"
"""Argo CD's own namespace."""
NAME = "acme-containers"
"""Name of the page's Application."""
_REFRESH = "argocd.argoproj.io/refresh"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ArgoCD:
    """Argo CD on one cluster, and the page's Application."""

    direct: DirectClient
    """The API server of the cluster."""
    rest: httpx.Client
    """Argo CD's own API, which its user interface shows."""
    folder: Path
    """The programs' logs."""

    def application(self) -> dict[str, Any]:
        """Return the Application."""
        body = self.direct.get(APPLICATION, NAME, NAMESPACE)
        assert body is not None, "there is no Application"
        return body

    def patch(self, spec: dict[str, Any]) -> None:
        """Change the Application's spec."""
        answer = self.direct.patch(APPLICATION, NAME, {"spec": spec}, NAMESPACE)
        answer.raise_for_status()

    def refresh(self) -> None:
        """Have the repository read again, and wait until it was, as ``argocd app get`` does."""
        patch = {"metadata": {"annotations": {_REFRESH: "normal"}}}
        self.direct.patch(APPLICATION, NAME, patch, NAMESPACE).raise_for_status()

        def handled() -> bool:
            return _REFRESH not in self.application()["metadata"].get("annotations", {})

        self.wait(handled, "a refresh")

    def wait_for(self, health: str, commit: str, *, sync: str = "Synced") -> dict[str, Any]:
        """Wait until the Application says this of a commit, and return its status."""

        def said() -> dict[str, Any]:
            status: dict[str, Any] = self.application().get("status", {})
            found = {"health": status.get("health"), "sync": status.get("sync")}
            assert status.get("sync", {}).get("revision") == commit, found
            assert status["sync"]["status"] == sync, found
            assert status["health"].get("status") == health, found
            return status

        return self.wait(said, f"{health} and {sync} at {commit}")

    def condition(self, kind: str) -> str:
        """Return the message of a condition of the Application; empty = it has none."""
        conditions = self.application().get("status", {}).get("conditions", ())
        return next((str(each["message"]) for each in conditions if each["type"] == kind), "")

    def tree(self) -> list[dict[str, Any]]:
        """Return the objects that the user interface shows below the Application."""
        found = self.rest.get(f"/api/v1/applications/{NAME}/resource-tree").raise_for_status()
        nodes: list[dict[str, Any]] = found.json().get("nodes") or []
        return nodes

    def wait(self, probe: Callable[[], T], what: str) -> T:
        """Wait for something that Argo CD does; show its logs when it does not."""
        try:
            return until_sync(probe, within=120, what=what)
        except AssertionError as error:
            logs = (path.read_text()[-SHOWN:] for path in sorted(self.folder.glob("*.log")))
            raise AssertionError("\n".join((str(error), *logs))) from error


@contextlib.contextmanager
def argocd_on(cluster: Cluster, direct: DirectClient, folder: Path) -> Iterator[ArgoCD]:
    """Install Argo CD's kinds and configuration and run its programs, until the block ends."""
    install_packages(["gitops"], Progress())
    files = module_files("argocd")
    _install(cluster, files / "manifests")
    # Files of a Go module are not executable.
    programs = folder / "programs"
    programs.mkdir()
    wrapper = programs / "git-verify-wrapper.sh"
    shutil.copyfile(files / "hack" / wrapper.name, wrapper)
    wrapper.chmod(0o755)
    for name in ("tls", "ssh", "gpg", "plugins", "tmp"):
        (folder / name).mkdir()
    ports = [free_port() for _ in range(3)]
    redis, repository, server = (f"127.0.0.1:{port}" for port in ports)
    variables = {
        "ARGOCD_FAKE_IN_CLUSTER": "true",
        "ARGOCD_GPG_ENABLED": "false",
        "ARGOCD_GNUPGHOME": str(folder / "gpg"),
        "ARGOCD_GPG_DATA_PATH": str(folder / "gpg"),
        "ARGOCD_PLUGINSOCKFILEPATH": str(folder / "plugins"),
        "ARGOCD_SSH_DATA_PATH": str(folder / "ssh"),
        "ARGOCD_TLS_DATA_PATH": str(folder / "tls"),
        "HOME": str(folder),
        "HOSTNAME": "argocd-application-controller-0",
        "KUBECONFIG": str(cluster.kubeconfig),
        "TMPDIR": str(folder / "tmp"),
    }
    with contextlib.ExitStack() as stack:
        store = ["redis-server", "--bind", "127.0.0.1", "--port", redis.partition(":")[2]]
        store += ["--save", "", "--appendonly", "no", "--dir", str(folder)]
        stack.enter_context(run_program(store, folder / "redis.log", variables))
        enter = stack.enter_context(apart([cluster.record.ports["apiserver"], *ports[:2]]))
        upstream = ("--redis", redis, "--repo-server", repository, "--repo-server-plaintext")
        roles = {
            "argocd-repo-server": (
                *_listen(repository),
                *("--metrics-address", "127.0.0.1", "--metrics-port", str(free_port())),
                *("--redis", redis, "--disable-tls", "--client-ca-path", ""),
            ),
            "argocd-application-controller": ("--namespace", NAMESPACE, *upstream),
            "argocd-server": (
                *_listen(server),
                *("--metrics-address", "127.0.0.1", "--metrics-port", str(free_port())),
                *("--namespace", NAMESPACE, "--insecure", "--disable-auth"),
                *upstream,
            ),
        }
        for role, arguments in roles.items():
            log = folder / f"{role}.log"
            named = variables | {"ARGOCD_BINARY_NAME": role}
            command = [str(binary("argocd")), *arguments]
            if role == "argocd-application-controller":
                command = [*enter, *command]
            stack.enter_context(run_program(command, log, named, programs=programs))
        rest = stack.enter_context(
            httpx.Client(base_url=f"http://{server}", timeout=30, trust_env=False, verify=NO_TRUST)
        )
        yield ArgoCD(direct, rest, folder)


def _listen(address: str) -> tuple[str, ...]:
    host, _, port = address.partition(":")
    return ("--address", host, "--port", port)


def _install(cluster: Cluster, manifests: Path) -> None:
    """Apply Argo CD's kinds and configuration, into its namespace."""
    # A cluster that was kept has it.
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(namespace))
    apply_crds(cluster, sorted((manifests / "crds").glob("*-crd.yaml")))
    files = sorted((manifests / "base" / "config").glob("argocd-*.yaml"))
    named = [word for each in files for word in ("-f", str(each))]
    cluster.kubectl("apply", "--server-side", "-n", NAMESPACE, *named)
