"""Routes from the gateway to what serves: which host names lead where, and what comes of them.

Source: Gateway API, "TLSRoute". A route is named after its host name, so that there is one at most;
who may have it is settled by the HostnameClaim.
"""

from collections.abc import Iterator, Mapping

from cloister_crds.kinds.enclave import Enclave
from cloister_crds.lifecycle.names.hostnames import is_held_by
from cloister_crds.lifecycle.rollout_state import Scene
from cloister_crds.lifecycle.state.conditions import Finding
from cloister_crds.lifecycle.state.decision import EndRoute, RouteHostname
from cloister_crds.lifecycle.state.observed import Gateway, RouteFacts, RouteStanding
from cloister_crds.names import preview_service_name, service_name

__all__ = ["changed_routes", "routed_finding", "wanted_routes"]

REMEDY = (
    "Ask the administrator: the listener of Gateway {gateway} has to be of protocol TLS in mode "
    "Passthrough, and to take TLSRoutes of the operator's namespace for that host name."
)


def wanted_routes(
    scene: Scene, leading: Enclave | None, staged: Enclave | None
) -> Mapping[str, str]:
    """Answer which host names are to lead to which Service.

    Parameters
    ----------
    scene
        What was observed.
    leading
        The Enclave that the Container's Service leads to, or is about to; None = there is none.
    staged
        The Enclave that waits for promotion; None = there is none.

    Returns
    -------
    Mapping[str, str]
        Names of Services by host name. A custom domain that is no longer served is not among them,
        nor a name that another Container holds.
    """
    if scene.settings.gateway is None:
        return {}
    name = scene.container.metadata.name
    claims = scene.observed.claims
    wanted = {}
    for host in leading.spec.hostnames if leading is not None else ():
        claim = claims.get(host)
        if claim is not None and is_held_by(claim, scene.container) and scene.is_served(host):
            wanted[host] = service_name(name)
    if staged is not None and staged.spec.preview:
        wanted[staged.spec.preview] = preview_service_name(name)
    return wanted


def changed_routes(scene: Scene, wanted: Mapping[str, str]) -> Iterator[RouteHostname | EndRoute]:
    """Go through what has to be done so that routes are as they should be.

    Parameters
    ----------
    scene
        What was observed.
    wanted
        Names of Services by host name.
    """
    gateway = scene.settings.gateway
    if gateway is None:
        return
    routes = scene.observed.routes
    for host, service in wanted.items():
        if host not in routes or not _is_so(routes[host], host, service, gateway):
            yield RouteHostname(host, service)
    for host, facts in routes.items():
        if host not in wanted and not _passes_over(scene, host):
            yield EndRoute(host, facts.uid, facts.resource_version)


def _passes_over(scene: Scene, host: str) -> bool:
    """Tell whether the successor has a host name now: it makes the route its own, without a gap."""
    claim, successor = scene.observed.claims.get(host), scene.observed.successor
    return claim is not None and successor is not None and is_held_by(claim, successor)


def routed_finding(scene: Scene, wanted: Mapping[str, str]) -> Finding | None:
    """Say whether the gateway leads the host names to the Container.

    Parameters
    ----------
    scene
        What was observed.
    wanted
        Names of Services by host name.

    Returns
    -------
    Finding | None
        The condition Routed; None = nothing is to be routed.
    """
    gateway = scene.settings.gateway
    if gateway is None or not wanted:
        return None
    place = f"{gateway.namespace}/{gateway.name}"
    facts = {host: scene.observed.routes.get(host) for host in wanted}
    for host, route in facts.items():
        if route is not None and route.standing is RouteStanding.REFUSED:
            told = f"The gateway does not route {host}: {route.message.rstrip('.')}. "
            text = told + REMEDY.format(gateway=place)
            return Finding("Routed", status=False, reason="RouteRefused", message=text)
    for host, route in facts.items():
        if (
            route is None
            or route.standing is RouteStanding.PENDING
            or not _is_so(route, host, wanted[host], gateway)
        ):
            text = (
                f"Gateway {place} has not said yet that it routes {host}; if it stays so, ask the "
                "administrator whether the Gateway exists and its controller runs."
            )
            return Finding("Routed", status=False, reason="RoutePending", message=text)
    text = f"Gateway {place} routes {', '.join(wanted)}."
    return Finding("Routed", status=True, reason="RouteAccepted", message=text)


def _is_so(route: RouteFacts, host: str, service: str, gateway: Gateway) -> bool:
    """Tell whether a route is as it should be."""
    return (route.hostnames, route.service, route.gateway) == ((host,), service, gateway)
