"""A gateway for tests: a real Envoy that TLSRoutes of a real API server drive.

`RunningGateway` is what it has in common with a real one (`tests.support.servers.envoy_gateway`).
The controller between the two is a small one for tests: it watches TLSRoutes, ReferenceGrants and
EndpointSlices, reports in each route's status whether it accepts it, and writes Envoy's
configuration. It is slow on purpose (`lag`): gateways of large clusters observe changes late.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from cloister_clients.kube import KindRef, KubeClient, KubeConfig, NotFound, Reflector
from cloister_clients.kube.kinds import ENDPOINT_SLICE, REFERENCE_GRANTS, TLS_ROUTES
from tests.support.servers.envoy import Envoy, Target

__all__ = ["CONTROLLER", "RunningGateway", "StandInGateway"]

CONTROLLER = "cloister.dev/tests"
"""Name of the controller, in the status of routes."""
_ROUTE, _GRANT = TLS_ROUTES[0], REFERENCE_GRANTS[0]
_SERVICE = "kubernetes.io/service-name"
Body = Mapping[str, Any]


class RunningGateway(Protocol):
    """A gateway that forwards connections as TLSRoutes say, until it is ended."""

    @property
    def address(self) -> tuple[str, int]:
        """Address and port that it listens on once there is a route."""

    def held(self) -> AbstractContextManager[None]:
        """Hold back all changes until the block ends."""

    def end(self) -> None:
        """Stop it."""


class StandInGateway:
    """The gateway with a stand-in controller, in a thread of its own.

    Parameters
    ----------
    namespace, name
        The Gateway whose routes it accepts; its routes are in the same namespace.
    lag
        Seconds between the observation of a change and its effect.
    """

    def __init__(
        self, kubeconfig: Path, *, namespace: str, name: str, folder: Path, lag: float
    ) -> None:
        self._envoy = Envoy(folder)
        self._kube = KubeConfig.load(kubeconfig, None)
        self._namespace, self._name, self._lag = namespace, name, lag
        self._held = False
        self._newest: dict[str, Target] = {}
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Address and port that it listens on once there is a route."""
        return "127.0.0.1", self._envoy.port

    def end(self) -> None:
        """Stop it and Envoy."""
        self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        self._thread.join(20)
        self._envoy.end()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold back all changes until the block ends."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
            self._loop.call_soon_threadsafe(self._configure)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(self._follow())
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            return
        finally:
            self._loop.close()

    async def _follow(self) -> None:
        """Report on routes and configure Envoy after every change."""
        async with (
            KubeClient(
                self._kube, field_manager="tests-gateway", user_agent="tests-gateway"
            ) as client,
            asyncio.TaskGroup() as tasks,
        ):
            copies = {
                ref: Reflector(client, ref, dict, namespace=self._namespace_of(ref))
                for ref in (_ROUTE, _GRANT, ENDPOINT_SLICE)
            }
            for copy in copies.values():
                tasks.create_task(copy.run())
            changed = asyncio.Event()
            for copy in copies.values():
                tasks.create_task(_notify(copy, changed))
            while True:
                await changed.wait()
                changed.clear()
                if all(copy.ready for copy in copies.values()):
                    await self._work(client, copies)

    def _namespace_of(self, ref: KindRef) -> str | None:
        return self._namespace if ref == _ROUTE else None

    async def _work(
        self, client: KubeClient, copies: Mapping[KindRef, Reflector[dict[str, Any]]]
    ) -> None:
        bodies = {ref: [each.value for each in copy.all()] for ref, copy in copies.items()}
        targets: dict[str, Target] = {}
        for route in bodies[_ROUTE]:
            if not self._is_mine(route):
                continue
            granted = _is_granted(route, bodies[_GRANT])
            await self._report(client, route, granted=granted)
            if granted:
                for host in route["spec"]["hostnames"]:
                    targets[host] = _target(route, bodies[ENDPOINT_SLICE])
        self._loop.call_later(self._lag, self._configure, targets)

    def _configure(self, targets: dict[str, Target] | None = None) -> None:
        """Configure Envoy, unless it is held; without targets with the newest."""
        self._newest = self._newest if targets is None else targets
        if not self._held:
            self._envoy.write(self._newest)

    def _is_mine(self, route: Body) -> bool:
        return any(
            each["name"] == self._name and each.get("namespace", self._namespace) == self._namespace
            for each in route["spec"]["parentRefs"]
        )

    async def _report(self, client: KubeClient, route: Body, *, granted: bool) -> None:
        """Write the route's status as a Gateway API controller must, unless it is up to date."""
        generation = route["metadata"]["generation"]
        parents = (route.get("status") or {}).get("parents") or []
        wanted = {"Accepted": "True", "ResolvedRefs": str(granted)}
        said = {
            each["type"]: each["status"]
            for parent in parents
            for each in parent["conditions"]
            if each["observedGeneration"] == generation
        }
        if said == wanted:
            return
        conditions = [
            {
                "type": kind,
                "status": status,
                "reason": kind if status == "True" else "RefNotPermitted",
                "message": "" if status == "True" else "No ReferenceGrant permits the Service.",
                "observedGeneration": generation,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for kind, status in wanted.items()
        ]
        parent = {
            "parentRef": route["spec"]["parentRefs"][0],
            "controllerName": CONTROLLER,
            "conditions": conditions,
        }
        with contextlib.suppress(NotFound):  # it was deleted meanwhile
            await client.merge_patch(
                _ROUTE,
                route["metadata"]["name"],
                {"status": {"parents": [parent]}},
                self._namespace,
                subresource="status",
            )


async def _notify(copy: Reflector[dict[str, Any]], changed: asyncio.Event) -> None:
    """Signal changes of a cache."""
    while True:
        seen = copy.version
        if await copy.until(partial(_is_newer, copy, seen), within=3600):
            changed.set()


def _is_newer(copy: Reflector[dict[str, Any]], seen: int) -> bool:
    return copy.version != seen


def _backend(route: Body) -> tuple[str, str]:
    """Return namespace and name of the Service of a route."""
    backend = route["spec"]["rules"][0]["backendRefs"][0]
    return backend.get("namespace", route["metadata"]["namespace"]), backend["name"]


def _is_granted(route: Body, grants: list[dict[str, Any]]) -> bool:
    """Return whether a ReferenceGrant permits a route's reference to its Service."""
    namespace, _ = _backend(route)
    wanted = {
        "group": _ROUTE.group,
        "kind": _ROUTE.kind,
        "namespace": route["metadata"]["namespace"],
    }
    return namespace == wanted["namespace"] or any(
        each["metadata"]["namespace"] == namespace
        and wanted in each["spec"]["from"]
        and any(to["kind"] == "Service" for to in each["spec"]["to"])
        for each in grants
    )


def _target(route: Body, slices: list[dict[str, Any]]) -> Target:
    """Return the target of a route: the ready endpoints of its Service."""
    namespace, service = _backend(route)
    mine = (
        each
        for each in slices
        if each["metadata"]["namespace"] == namespace
        and each["metadata"].get("labels", {}).get(_SERVICE) == service
    )
    endpoints = {
        (address, each["ports"][0]["port"])
        for each in mine
        for endpoint in each.get("endpoints") or ()
        if endpoint.get("conditions", {}).get("ready") is not False
        for address in endpoint["addresses"]
    }
    return Target(f"{namespace}.{service}", tuple(sorted(endpoints)))
