"""Simulated nodes of a cluster without real ones: Pods are bound, run and fail by their outcome.

The API server and the controllers are real, and so are the Pods as objects; no container runs.
It is a thread, so that Pods go on while a test kills an operator. A function of the test
decides each Pod's outcome once; by default it runs and is ready.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from cloister_clients.clock import utc_now
from cloister_clients.kube.kinds import NODE, POD
from cloister_crds.names import ENCLAVE_LABEL
from tests.support.builders.enclave_plans import of_file
from tests.support.cluster.direct_client import DirectClient

__all__ = ["READY", "PodOutcome", "SimulatedNodes"]

_STARTED = "2026-01-01T00:00:00Z"
_PAUSE = 0.1
"""Seconds between two checks of all Pods."""
_HEARTBEAT = 5.0
"""Seconds between two heartbeats of the nodes."""


@dataclass(frozen=True)
class PodOutcome:
    """Outcome of a Pod."""

    code: int | None = None
    """Exit code of its first container; None = all run and are ready."""
    starts: bool = True
    """Whether it starts at all; False = it stays Pending."""


READY = PodOutcome()
"""It runs and is ready."""


class SimulatedNodes:
    """Simulate nodes until `stop`."""

    def __init__(
        self,
        direct: DirectClient,
        *,
        nodes: tuple[str, ...] = (),
        outcome: Callable[[dict[str, Any]], PodOutcome] = lambda _: READY,
    ) -> None:
        self.nodes = list(nodes)
        """Nodes that Pods are bound to; empty = Pods run without being bound."""
        self.outcome = outcome
        """Decides the outcome of a Pod when it is first seen."""
        self.dead: set[str] = set()
        """Dead nodes: their Pods are neither reported on nor terminated."""
        self._direct = direct
        self._done: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="played nodes", daemon=True)
        self._beat = 0.0
        self.trouble = ""
        """The last error; empty = none."""

    def start(self) -> None:
        """Create the nodes and start the thread."""
        for name in self.nodes:
            self._direct.create(NODE, {"metadata": {"name": name}})
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and delete the nodes."""
        self._stop.set()
        self._thread.join(30)
        for name in self.nodes:
            self._direct.delete(NODE, name)

    def add(self, name: str) -> None:
        """Create another node."""
        self._direct.create(NODE, {"metadata": {"name": name}})
        self.nodes.append(name)
        self._beat = 0.0

    def kill(self, name: str) -> None:
        """Kill a node; report NotReady at once, which saves the wait for missed heartbeats."""
        self.dead.add(name)
        self._report_ready(name, "False")

    def _run(self) -> None:
        """Check all Pods periodically; ignore an unavailable server."""
        while not self._stop.wait(_PAUSE):
            try:
                self._heartbeat()
                for pod in self._direct.list_objects(POD, labelSelector=ENCLAVE_LABEL):
                    self._update(pod)
            except (httpx.HTTPError, AssertionError) as error:
                self.trouble = str(error)

    def _heartbeat(self) -> None:
        """Report the nodes as ready, as kubelets do."""
        now = utc_now()
        if now.timestamp() - self._beat < _HEARTBEAT:
            return
        self._beat = now.timestamp()
        for name in tuple(self.nodes):
            if name not in self.dead:
                self._report_ready(name, "True")

    def _report_ready(self, name: str, status: str) -> None:
        reported = utc_now().isoformat(timespec="seconds").replace("+00:00", "Z")
        ready = {
            "type": "Ready", "status": status, "reason": "Played", "message": "",
            "lastHeartbeatTime": reported, "lastTransitionTime": _STARTED,
        }  # fmt: skip
        self._direct.patch(NODE, name, {"status": {"conditions": [ready]}}, None, "status")

    def _update(self, pod: dict[str, Any]) -> None:
        """Bind, start or terminate one Pod."""
        metadata, uid = pod["metadata"], pod["metadata"]["uid"]
        if pod["spec"].get("nodeName") in self.dead:
            return
        if "deletionTimestamp" in metadata:
            self._direct.delete(POD, metadata["name"], metadata["namespace"], grace=0)
        elif self.nodes and not pod["spec"].get("nodeName"):
            self._bind(pod)
        elif uid not in self._done:
            outcome = self.outcome(pod)
            # One that does not start yet is asked for again: a test may have it start later.
            if outcome.starts and self._write_status(pod, outcome).is_success:
                self._done.add(uid)

    def _bind(self, pod: dict[str, Any]) -> None:
        """Bind a Pod to the first eligible node, as a scheduler does."""
        metadata = pod["metadata"]
        free = [
            each["metadata"]["name"]
            for each in self._direct.list_objects(NODE)
            if each["metadata"]["name"] in self.nodes
            and each["metadata"]["name"] not in self.dead
            and not each["spec"].get("unschedulable")
        ]
        if not free:
            return
        target = {"apiVersion": "v1", "kind": "Node", "name": free[0]}
        path = POD.path(metadata["namespace"], metadata["name"], "binding")
        body = {
            "apiVersion": "v1", "kind": "Binding", "target": target,
            "metadata": {"name": metadata["name"]},
        }  # fmt: skip
        self._direct.request("POST", path, body)

    def _write_status(self, pod: dict[str, Any], outcome: PodOutcome) -> httpx.Response:
        """Write the status of a Pod that starts."""
        spec, metadata = pod["spec"], pod["metadata"]
        containers = [running(each) for each in spec["containers"]]
        if outcome.code is not None:
            first = of_file(pod)[0]
            containers[spec["containers"].index(first)] = ended(first, outcome.code)
        number = int(metadata["uid"][:4], 16) % 60_000
        address = f"10.99.{number // 250}.{number % 250 + 1}"
        status = {
            "phase": "Running",
            "containerStatuses": containers,
            "initContainerStatuses": [running(each) for each in spec.get("initContainers", ())],
            "podIP": address,
            "podIPs": [{"ip": address}],
        }
        return self._direct.patch(
            POD, metadata["name"], {"status": status}, metadata["namespace"], "status"
        )


def running(container: dict[str, Any]) -> dict[str, Any]:
    """Return the status of a running, ready container, or of a completed init container."""
    runs = {"running": {"startedAt": _STARTED}}
    return {
        **_common(container),
        "ready": True,
        "started": True,
        "state": runs if container.get("restartPolicy") else {"terminated": _end(0, "Completed")},
    }


def ended(container: dict[str, Any], code: int) -> dict[str, Any]:
    """Return the status of a container that terminated with an exit code."""
    return {**_common(container), "ready": False, "state": {"terminated": _end(code, "Error")}}


def _common(container: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "restartCount": 0,
    }


def _end(code: int, reason: str) -> dict[str, Any]:
    return {"exitCode": code, "reason": reason, "startedAt": _STARTED, "finishedAt": _STARTED}
