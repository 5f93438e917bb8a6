"""A simulated controller of a Gateway, which accepts every TLSRoute of a namespace.

Routes and CRDs are real; no traffic is forwarded.
"""

import threading
from typing import Any

import httpx

from cloister_clients.kube.kinds import TLS_ROUTES
from tests.support.cluster.direct_client import DirectClient

__all__ = ["SimulatedGateway"]

ROUTE = TLS_ROUTES[0]
_PAUSE = 0.2
"""Seconds between two checks of all routes."""
_ACCEPTED = {
    "type": "Accepted",
    "status": "True",
    "reason": "Accepted",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


class SimulatedGateway:
    """Accept routes until `stop`."""

    def __init__(self, direct: DirectClient, namespace: str) -> None:
        self._direct = direct
        self._namespace = namespace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="played gateway", daemon=True)
        self.held = False
        """Whether routes that are not accepted yet stay so."""
        self.trouble = ""
        """The last error; empty = none."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(30)

    def _run(self) -> None:
        """Check all routes periodically; ignore an unavailable server."""
        while not self._stop.wait(_PAUSE):
            if self.held:
                continue
            try:
                for route in self._direct.list_objects(ROUTE, self._namespace):
                    self._accept(route)
            except (httpx.HTTPError, AssertionError) as error:
                self.trouble = str(error)

    def _accept(self, route: dict[str, Any]) -> None:
        """Write the status Accepted of a route's current generation."""
        parents = route.get("status", {}).get("parents", ())
        generation = route["metadata"]["generation"]
        reported = [condition for each in parents for condition in each["conditions"]]
        if any(each["observedGeneration"] == generation for each in reported):
            return
        parent = {
            "parentRef": route["spec"]["parentRefs"][0],
            "controllerName": "gateway.example/played",
            "conditions": [{**_ACCEPTED, "observedGeneration": generation}],
        }
        name = route["metadata"]["name"]
        self._direct.patch(
            ROUTE, name, {"status": {"parents": [parent]}}, self._namespace, "status"
        )
