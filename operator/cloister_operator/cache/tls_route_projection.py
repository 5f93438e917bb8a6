"""Reads TLSRoutes: where one leads, and what the gateway that it is attached to says of it."""

from collections.abc import Iterator, Mapping
from typing import Any

from cloister_crds.lifecycle.state.observed import Gateway, RouteFacts, RouteState

__all__ = ["read_route"]

_ACCEPTED, _RESOLVED = "Accepted", "ResolvedRefs"


def read_route(body: Mapping[str, Any], namespace: str) -> RouteFacts:
    """Answer what of a route matters.

    Parameters
    ----------
    body
        The route, as the store has it.
    namespace
        Namespace of the Container that it is to lead to.
    """
    metadata, spec = body["metadata"], body["spec"]
    parents = [_gateway(each, metadata["namespace"]) for each in spec.get("parentRefs") or ()]
    gateway = parents[0] if len(parents) == 1 else None
    backends = [each for rule in spec.get("rules") or () for each in rule.get("backendRefs") or ()]
    single = len(backends) == 1 and backends[0].get("namespace") == namespace
    state, message = _standing(body, gateway)
    return RouteFacts(
        hostnames=tuple(spec.get("hostnames") or ()),
        service=backends[0]["name"] if single else "",
        gateway=gateway,
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        state=state,
        message=message,
    )


def _gateway(reference: Mapping[str, Any], namespace: str) -> Gateway:
    """Read what a reference names; without a namespace it means the route's own."""
    return Gateway(
        reference["name"],
        reference.get("namespace") or namespace,
        reference.get("sectionName") or "",
    )


def _standing(body: Mapping[str, Any], gateway: Gateway | None) -> tuple[RouteState, str]:
    """Judge the conditions that controllers wrote about the route as it is now."""
    conditions = [
        each for each in _conditions(body, gateway) if each["type"] in {_ACCEPTED, _RESOLVED}
    ]
    for each in conditions:
        if each["status"] == "False":
            told = each.get("message") or "no reason is given"
            return RouteState.REFUSED, f"{each.get('reason', each['type'])}: {told}"
    accepted = {each["type"] for each in conditions if each["status"] == "True"}
    if _ACCEPTED in accepted:
        return RouteState.ACCEPTED, ""
    return RouteState.PENDING, ""


def _conditions(body: Mapping[str, Any], gateway: Gateway | None) -> Iterator[Mapping[str, Any]]:
    """Go through the conditions for the Gateway; those of an older generation do not count."""
    metadata = body["metadata"]
    generation = metadata.get("generation", 0)
    for parent in body["status"]["parents"]:
        if _gateway(parent["parentRef"], metadata["namespace"]) != gateway:
            continue
        for each in parent.get("conditions") or ():
            if each.get("observedGeneration", generation) >= generation:
                yield each
