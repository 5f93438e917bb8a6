"""Plays the controller of a Gateway: it takes every TLSRoute of a namespace.

The routes and their kinds are real; no request goes through them.
"""

import threading
from typing import Any

import httpx

from cloister_clients.kube.kinds import TLS_ROUTES
from tests.support.cluster.direct_client import DirectClient

__all__ = ["SimulatedGateway"]

ROUTE = TLS_ROUTES[0]
_PAUSE = 0.2
"""Seconds between two looks at all routes."""
_ACCEPTED = {
    "type": "Accepted",
    "status": "True",
    "reason": "Accepted",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


class SimulatedGateway:
    """Takes routes until `stop`."""

    def __init__(self, direct: DirectClient, namespace: str) -> None:
        self._direct = direct
        self._namespace = namespace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="played gateway", daemon=True)
        self.trouble = ""
        """What went wrong at last; empty = nothing."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; harmless when it has not begun."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(30)

    def _run(self) -> None:
        """Look at all routes again and again; a server that is away is asked later."""
        while not self._stop.wait(_PAUSE):
            try:
                for route in self._direct.list_objects(ROUTE, self._namespace):
                    self._look(route)
            except (httpx.HTTPError, AssertionError) as error:
                self.trouble = str(error)

    def _look(self, route: dict[str, Any]) -> None:
        """Return of a route that it is taken, as it is now."""
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
