"""Routes from the gateway to what serves: which host name goes to which Service, and their state.

Source: Gateway API, "TLSRoute". A route is named after its host name, so that there is one at most;
the HostnameClaim settles who may have it.
"""

from collections.abc import Iterator, Mapping

from cloister_crds.kinds.enclave import Enclave
from cloister_crds.lifecycle.names.hostnames import is_held_by
from cloister_crds.lifecycle.state.conditions import ConditionUpdate
from cloister_crds.lifecycle.state.observed import Gateway, RouteFacts, RouteState
from cloister_crds.names import preview_service_name, service_name
from cloister_operator.rollout.decision import DeleteRoute, RouteHostname
from cloister_operator.rollout.rollout_state import RolloutState

REMEDY = (
    "Ask the administrator: the listener of Gateway {gateway} must be of protocol TLS in mode "
    "Passthrough, and to take TLSRoutes of the operator's namespace for that host name."
)


def wanted_routes(
    state: RolloutState, target: Enclave | None, staged: Enclave | None
) -> Mapping[str, str]:
    """Return which host names must be routed to which Service.

    Parameters
    ----------
    target
        The Enclave that the Container's Service selects, or is about to; None if there is none.
    staged
        The Enclave that waits for promotion; None if there is none.

    Returns
    -------
    Mapping[str, str]
        Names of Services by host name. A custom domain that is no longer served is not among them,
        nor a name that another Container holds; a preview is its whose the generated name is.
    """
    if state.settings.gateway is None:
        return {}
    name = state.container.metadata.name
    wanted = {}
    for host in target.spec.hostnames if target is not None else ():
        if _holds(state, host) and state.accepts(host):
            wanted[host] = service_name(name)
    # A preview's name follows from the generated one, and belongs to its holder.
    generated = state.internal_hostname
    if staged is not None and staged.spec.preview and _holds(state, generated):
        wanted[staged.spec.preview] = preview_service_name(name)
    return wanted


def _holds(state: RolloutState, host: str) -> bool:
    claim = state.observed.claims.get(host)
    return claim is not None and is_held_by(claim, state.container)


def changed_routes(
    state: RolloutState, wanted: Mapping[str, str]
) -> Iterator[RouteHostname | DeleteRoute]:
    """Yield the actions that make the routes as desired."""
    gateway = state.settings.gateway
    if gateway is None:
        return
    routes = state.observed.routes
    for host, service in wanted.items():
        if host not in routes or not _is_current(routes[host], host, service, gateway):
            yield RouteHostname(host, service)
    for host, facts in routes.items():
        if host not in wanted and not _is_transferred(state, host):
            yield DeleteRoute(host, facts.uid, facts.resource_version)


def _is_transferred(state: RolloutState, host: str) -> bool:
    """Return whether the replacement has a host name now: it adopts the route, without a gap."""
    claim, successor = state.observed.claims.get(host), state.observed.successor
    return claim is not None and successor is not None and is_held_by(claim, successor)


def routed_condition(state: RolloutState, wanted: Mapping[str, str]) -> ConditionUpdate | None:
    """Return whether the gateway routes the host names to the Container.

    Returns
    -------
    ConditionUpdate | None
        The condition Routed; None if nothing is routed.
    """
    gateway = state.settings.gateway
    if gateway is None or not wanted:
        return None
    place = f"{gateway.namespace}/{gateway.name}"
    facts = {host: state.observed.routes.get(host) for host in wanted}
    # A refusal comes first: it needs an action, while a pending route may be confirmed soon.
    for host, route in facts.items():
        if route is not None and route.state is RouteState.REFUSED:
            cause = f"The gateway does not route {host}: {route.message.rstrip('.')}. "
            text = cause + REMEDY.format(gateway=place)
            return ConditionUpdate("Routed", status=False, reason="RouteRefused", message=text)
    for host, route in facts.items():
        if (
            route is None
            or route.state is RouteState.PENDING
            or not _is_current(route, host, wanted[host], gateway)
        ):
            text = (
                f"Gateway {place} has not confirmed yet that it routes {host}; if it persists, ask "
                "the administrator whether the Gateway exists and its controller runs."
            )
            return ConditionUpdate("Routed", status=False, reason="RoutePending", message=text)
    text = f"Gateway {place} routes {', '.join(wanted)}."
    return ConditionUpdate("Routed", status=True, reason="RouteAccepted", message=text)


def _is_current(route: RouteFacts, host: str, service: str, gateway: Gateway) -> bool:
    """Return whether a route is as wanted."""
    return (route.hostnames, route.service, route.gateway) == ((host,), service, gateway)
