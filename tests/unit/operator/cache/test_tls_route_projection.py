"""The projection of a TLSRoute: its backend, and what its controllers report."""

from copy import deepcopy
from typing import Any

import pytest

from cloister_crds.lifecycle.state.observed import Gateway, RouteState
from cloister_operator.cache.pod_projection import read_route

PARENT = {"name": "public", "namespace": "gateways", "sectionName": "tls"}


def route(*conditions: dict[str, Any], parent: dict[str, Any] = PARENT) -> dict[str, Any]:
    """Build a route with the conditions of one controller."""
    parents = [{"parentRef": parent, "controllerName": "c", "conditions": list(conditions)}]
    backend = {"name": "web", "namespace": "org-acme", "port": 443}
    return {
        "metadata": {
            "name": "web.example",
            "namespace": "cloister-system",
            "uid": "1",
            "resourceVersion": "7",
            "generation": 2,
        },
        "spec": {
            "parentRefs": [PARENT],
            "hostnames": ["web.example"],
            "rules": [{"backendRefs": [backend]}],
        },
        "status": {"parents": parents if conditions else []},
    }


def says(kind: str, status: str, *, generation: int = 2, reason: str = "Why") -> dict[str, Any]:
    """Build a condition."""
    message = f"{kind} is {status}"
    return {
        "type": kind,
        "status": status,
        "observedGeneration": generation,
        "reason": reason,
        "message": message,
    }


def test_the_backend_and_the_gateway_of_a_route() -> None:
    facts = read_route(route(), "org-acme")
    assert facts.hostnames == ("web.example",)
    assert facts.service == "web"
    assert facts.gateway == Gateway("public", "gateways", "tls")
    assert (facts.uid, facts.resource_version) == ("1", "7")


def test_a_service_of_another_namespace_is_not_ours() -> None:
    assert not read_route(route(), "org-other").service


def test_a_second_parent_or_backend_of_a_route_is_not_ours() -> None:
    body = deepcopy(route())
    body["spec"]["parentRefs"].append({"name": "other"})
    body["spec"]["rules"][0]["backendRefs"].append({"name": "other"})
    facts = read_route(body, "org-acme")
    assert (facts.gateway, facts.service) == (None, "")


@pytest.mark.parametrize(
    ("body", "state", "message"),
    [
        (route(), RouteState.PENDING, ""),
        (route(says("Accepted", "True")), RouteState.ACCEPTED, ""),
        (
            route(says("Accepted", "True"), says("ResolvedRefs", "True")),
            RouteState.ACCEPTED,
            "",
        ),
        (route(says("Accepted", "False")), RouteState.REFUSED, "Why: Accepted is False"),
        (
            route(
                says("Accepted", "True"), says("ResolvedRefs", "False", reason="RefNotPermitted")
            ),
            RouteState.REFUSED,
            "RefNotPermitted: ResolvedRefs is False",
        ),
        (route(says("Accepted", "Unknown")), RouteState.PENDING, ""),
        (route(says("Accepted", "True", generation=1)), RouteState.PENDING, ""),
        (route(says("Accepted", "False", generation=1)), RouteState.PENDING, ""),
        (route(says("Shiny", "False")), RouteState.PENDING, ""),
        (
            route(says("Accepted", "True"), parent=PARENT | {"name": "other"}),
            RouteState.PENDING,
            "",
        ),
    ],
)
def test_what_the_gateway_reports_about_a_route(
    body: dict[str, Any], state: RouteState, message: str
) -> None:
    facts = read_route(body, "org-acme")
    assert (facts.state, facts.message) == (state, message)
