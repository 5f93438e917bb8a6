"""Reads the projection of a TLSRoute: its backend, and what its gateway reports about it."""

from collections.abc import Iterator, Mapping
from typing import Any

from cloister_crds.lifecycle.state.observed import Gateway, RouteFacts, RouteState

__all__ = ["read_route"]

_ACCEPTED, _RESOLVED = "Accepted", "ResolvedRefs"


def read_route(body: Mapping[str, Any], namespace: str) -> RouteFacts:
    """Read the projection of a TLSRoute that should lead to a Container of a namespace."""
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
    """Read the Gateway that a reference names, by default in the route's own namespace."""
    return Gateway(
        reference["name"],
        reference.get("namespace") or namespace,
        reference.get("sectionName") or "",
    )


def _standing(body: Mapping[str, Any], gateway: Gateway | None) -> tuple[RouteState, str]:
    """Evaluate the conditions that gateway controllers wrote about the present generation."""
    conditions = [
        each for each in _conditions(body, gateway) if each["type"] in {_ACCEPTED, _RESOLVED}
    ]
    for each in conditions:
        if each["status"] == "False":
            message = each.get("message") or "no reason is given"
            return RouteState.REFUSED, f"{each.get('reason', each['type'])}: {message}"
    accepted = {each["type"] for each in conditions if each["status"] == "True"}
    if _ACCEPTED in accepted:
        return RouteState.ACCEPTED, ""
    return RouteState.PENDING, ""


def _conditions(body: Mapping[str, Any], gateway: Gateway | None) -> Iterator[Mapping[str, Any]]:
    """Return the conditions about a Gateway; those of an older generation do not count."""
    metadata = body["metadata"]
    generation = metadata.get("generation", 0)
    for parent in body["status"]["parents"]:
        if _gateway(parent["parentRef"], metadata["namespace"]) != gateway:
            continue
        for each in parent.get("conditions") or ():
            if each.get("observedGeneration", generation) >= generation:
                yield each
