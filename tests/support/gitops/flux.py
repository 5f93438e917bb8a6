"""Flux: its source, kustomize and helm controllers as processes of this machine.

They act as a cluster's administrator, as they do where Flux is installed, and as the service
account that a Kustomization names. There is no notification controller.
"""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cloister_clients.kube import KindRef
from dev.cluster import Cluster
from dev.cluster.binaries import ensure
from tests.support.cluster.direct_client import DirectClient
from tests.support.gitops.program import SHOWN, apply_crds, module_files, run_program
from tests.support.ports import free_port
from tests.support.waiting import until_sync

__all__ = ["CONTROLLERS", "KUSTOMIZATION", "RELEASE", "SOURCE", "Flux", "condition", "flux_on"]

CONTROLLERS = ("source-controller", "kustomize-controller", "helm-controller")
"""Flux's controllers, by the names of their programs."""
SOURCE = KindRef("source.toolkit.fluxcd.io", "v1", "gitrepositories", "GitRepository")
KUSTOMIZATION = KindRef("kustomize.toolkit.fluxcd.io", "v1", "kustomizations", "Kustomization")
RELEASE = KindRef("helm.toolkit.fluxcd.io", "v2", "helmreleases", "HelmRelease")
_REQUEST = "reconcile.fluxcd.io/requestedAt"
"""The annotation by which ``flux reconcile`` asks for a reconciliation."""
_MODULES = ("flux-source", "flux-kustomize", "flux-helm")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Flux:
    """Flux on one cluster, seen through one namespace."""

    direct: DirectClient
    """The API server."""
    namespace: str
    """Namespace of source and Kustomizations."""
    folder: Path
    """The controllers' logs."""

    def reconcile(self, ref: KindRef, name: str) -> None:
        """Ask for a reconciliation and wait until it is done, as ``flux reconcile`` does."""
        token = self.request(ref, name)

        def handled() -> bool:
            status = self._read(ref, name).get("status", {})
            return bool(status.get("lastHandledReconcileAt") == token)

        self.wait(handled, f"a reconciliation of {name}")

    def request(self, ref: KindRef, name: str) -> str:
        """Ask for a reconciliation and return its token."""
        token = uuid.uuid4().hex
        patch = {"metadata": {"annotations": {_REQUEST: token}}}
        self.direct.patch(ref, name, patch, self.namespace).raise_for_status()
        return token

    def wait_for(
        self, status: str, commit: str, *, name: str = "acme-containers", reason: str = ""
    ) -> str:
        """Wait until a Kustomization says this of a commit, and return the message.

        Parameters
        ----------
        reason
            Reason of the condition; empty = any.
        """

        def said() -> str:
            body = self._read(KUSTOMIZATION, name)
            seen = body.get("status", {})
            ready = condition(body, "Ready")
            field = "lastAppliedRevision" if status == "True" else "lastAttemptedRevision"
            assert ready is not None, seen
            assert seen.get(field) == f"main@sha1:{commit}", seen
            assert (ready["status"], reason) in {(status, ready["reason"]), (status, "")}, seen
            return str(ready["message"])

        return self.wait(said, f"Kustomization {name} {status} {reason} at {commit}")

    def _read(self, ref: KindRef, name: str) -> dict[str, Any]:
        body = self.direct.get(ref, name, self.namespace)
        assert body is not None, f"there is no {ref.kind} {name}"
        return body

    def wait_while_checking(self, commit: str, *, name: str = "acme-containers") -> None:
        """Wait until a Kustomization waits for the objects of a commit."""

        def checks() -> bool:
            body = self._read(KUSTOMIZATION, name)
            healthy, ready = condition(body, "Healthy"), condition(body, "Ready")
            seen = body.get("status", {})
            assert seen.get("lastAttemptedRevision") == f"main@sha1:{commit}", seen
            assert healthy is not None, seen
            assert ready is not None, seen
            assert (healthy["status"], ready["status"]) == ("Unknown", "Unknown"), seen
            return "Running health checks" in healthy["message"]

        self.wait(checks, f"Kustomization {name} that waits at {commit}")

    def wait(self, probe: Callable[[], T], what: str) -> T:
        """Wait for something that Flux does; show the controllers' logs when it does not."""
        try:
            return until_sync(probe, within=120, what=what)
        except AssertionError as error:
            logs = (path.read_text()[-SHOWN:] for path in sorted(self.folder.glob("*.log")))
            raise AssertionError("\n".join((str(error), *logs))) from error


def condition(body: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """Return a condition of an object; None = it has none of that type."""
    conditions: list[dict[str, Any]] = body.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == kind), None)


@contextlib.contextmanager
def flux_on(cluster: Cluster, direct: DirectClient, namespace: str, folder: Path) -> Iterator[Flux]:
    """Install Flux's kinds and run its controllers, until the block ends.

    Parameters
    ----------
    namespace
        Namespace of source and Kustomizations.
    """
    apply_crds(cluster, (module_files(name) / "config" / "crd" / "bases" for name in _MODULES))
    programs = ensure(CONTROLLERS)
    artifacts = folder / "artifacts"
    artifacts.mkdir()
    address = f"127.0.0.1:{free_port()}"
    more = {
        "source-controller": (
            f"--storage-path={artifacts}",
            f"--storage-addr={address}",
            f"--storage-adv-addr={address}",
        ),
        "kustomize-controller": ("--no-cross-namespace-refs", "--requeue-dependency=5s"),
        "helm-controller": ("--no-cross-namespace-refs",),
    }
    variables = {
        "KUBECONFIG": str(cluster.kubeconfig),
        "RUNTIME_NAMESPACE": "flux-system",
        "HOME": str(folder),
        "TMPDIR": str(folder),
    }
    with contextlib.ExitStack() as stack:
        for name, program in programs.items():
            command = [str(program), "--metrics-addr=0", "--health-addr=0", *more[name]]
            stack.enter_context(run_program(command, folder / f"{name}.log", variables))
        yield Flux(direct, namespace, folder)
