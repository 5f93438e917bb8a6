"""Routes of the gateway: one for each host name that may be served, and what becomes of them."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cloister_crds.kinds.container import ContainerPhase, DesiredState
from cloister_crds.kinds.organization import Entitlements
from cloister_crds.lifecycle.state.conditions import condition, holds
from cloister_crds.lifecycle.state.observed import Gateway, RouteState
from cloister_operator.rollout.decision import DeleteRoute, RouteHostname
from tests.support.builders.resources import DOMAIN, SETTINGS, claim_of, domain_of, organization_of
from tests.support.builders.world import SimulatedCluster

GATEWAY = Gateway("public", "cloister-system", "tls")
ROUTED = replace(SETTINGS, gateway=GATEWAY)
HOST = "api.customer.test"
GENERATED = f"web.acme.{DOMAIN}"
PREVIEW = f"web.preview.acme.{DOMAIN}"


def routed_world() -> SimulatedCluster:
    """Make a world whose Container serves and whose gateway routes to it."""
    world = SimulatedCluster(ROUTED)
    world.settle()
    world.report_routes(RouteState.ACCEPTED)
    world.settle()
    return world


def at_a_domain() -> SimulatedCluster:
    """Make one whose Container serves at a custom domain too."""
    world = routed_world()
    entitlements = Entitlements(domain_suffixes=("customer.test",))
    world.organization = organization_of(entitlements=entitlements)
    world.domains = (domain_of(HOST),)
    world.change_spec(custom_domain=HOST)
    world.settle()
    world.report_routes(RouteState.ACCEPTED)
    world.settle()
    return world


def services(world: SimulatedCluster) -> dict[str, str]:
    """Return the Service of each route."""
    return {host: route.service for host, route in world.routes.items()}


def test_without_a_gateway_nothing_is_routed() -> None:
    world = SimulatedCluster()
    world.settle()
    assert not world.routes
    assert condition(world.container.status.conditions, "Routed") is None


def test_ready_waits_for_the_gateway() -> None:
    world = SimulatedCluster(ROUTED)
    world.settle()
    status = world.container.status
    assert services(world) == {GENERATED: "web"}
    assert status.phase is ContainerPhase.READY
    assert holds(status.conditions, "Available")
    assert (world.reason(), holds(status.conditions, "Ready")) == ("RoutePending", False)
    assert world.reason("Reconciling") == "RoutePending"
    world.report_routes(RouteState.ACCEPTED)
    world.settle()
    status = world.container.status
    assert (world.reason(), holds(status.conditions, "Ready")) == ("Serving", True)
    assert (world.reason("Routed"), holds(status.conditions, "Routed")) == ("RouteAccepted", True)
    assert world.reason("Reconciling") is None


def test_a_route_that_is_refused_says_why_and_what_to_do() -> None:
    world = routed_world()
    world.report_routes(RouteState.REFUSED, "NoMatchingListenerHostname: no listener takes it.")
    world.settle()
    told = condition(world.container.status.conditions, "Ready")
    assert told is not None
    assert (told.reason, world.reason("Routed")) == ("RouteRefused", "RouteRefused")
    assert GENERATED in told.message
    assert "no listener takes it. Ask the administrator" in told.message
    assert "cloister-system/public" in told.message
    assert holds(world.container.status.conditions, "Available")


def test_a_custom_domain_has_a_route_of_its_own() -> None:
    world = at_a_domain()
    assert services(world) == {HOST: "web", GENERATED: "web"}


def test_leaving_a_custom_domain_out_ends_its_route() -> None:
    world = at_a_domain()
    world.change_spec(custom_domain=None)
    world.settle()
    assert services(world) == {GENERATED: "web"}


@pytest.mark.parametrize("deleted", [False, True])
def test_a_domain_that_is_dropped_is_no_longer_routed(*, deleted: bool) -> None:
    world = at_a_domain()
    lost = world.now
    world.domains = (domain_of(HOST, verified=False, lost_at=lost),)
    world.settle()
    assert HOST in world.routes, "the time of grace"
    if deleted:
        world.domains = ()
    else:
        world.now = lost + SETTINGS.domain_grace + timedelta(seconds=1)
    world.settle()
    assert services(world) == {GENERATED: "web"}
    assert holds(world.container.status.conditions, "Available")
    world.domains = (domain_of(HOST),)
    world.settle()
    assert HOST in world.routes


def test_a_name_that_another_container_holds_is_not_routed() -> None:
    world = at_a_domain()
    world.claims[HOST] = claim_of(HOST, holder="other")
    world.settle()
    assert services(world) == {GENERATED: "web"}


def test_a_staged_update_is_routed_at_its_preview() -> None:
    world = routed_world()
    world.change_spec(staging=True, tag="v1.1.0")
    world.settle()
    assert services(world)[GENERATED] == "web"
    assert services(world)[PREVIEW] not in ("", "web")
    assert world.reason() == "RoutePending"
    world.report_routes(RouteState.ACCEPTED)
    world.settle()
    assert world.reason() == "AwaitingPromotion"
    world.promote()
    world.settle()
    assert services(world) == {GENERATED: "web"}


def test_a_preview_is_routed_only_to_who_holds_the_generated_name() -> None:
    world = routed_world()
    world.change_spec(staging=True, tag="v1.1.0")
    world.settle()
    assert PREVIEW in world.routes
    world.claims[GENERATED] = claim_of(GENERATED, holder="other")
    world.settle()
    assert PREVIEW not in world.routes


def test_an_update_leaves_the_route_alone() -> None:
    world = routed_world()
    world.decisions.clear()
    world.change_spec(tag="v1.1.0")
    world.settle()
    actions = [action for decision in world.decisions for action in decision.actions]
    assert not [each for each in actions if isinstance(each, RouteHostname | DeleteRoute)]
    assert all(holds(each.status.conditions, "Available") for each in world.decisions)


def test_a_lost_pod_keeps_the_route() -> None:
    world = routed_world()
    world.decisions.clear()
    world.lose_pod(world.container.status.active_enclave)
    world.settle()
    actions = [action for decision in world.decisions for action in decision.actions]
    assert not [each for each in actions if isinstance(each, RouteHostname | DeleteRoute)]
    assert world.reason() == "Serving"


def test_a_stopped_container_is_not_routed() -> None:
    world = routed_world()
    world.change_spec(state=DesiredState.STOPPED)
    world.settle()
    assert not world.routes
    assert world.reason() == "Stopped"


@pytest.mark.parametrize("gateway", [Gateway("other", "cloister-system", "tls"), None])
def test_a_route_that_is_not_as_it_should_be_is_written_again(gateway: Gateway | None) -> None:
    world = routed_world()
    world.routes[GENERATED] = replace(world.routes[GENERATED], gateway=gateway)
    world.settle()
    assert world.routes[GENERATED].gateway == GATEWAY


def test_a_preview_after_an_ended_update_is_that_of_the_request_that_counts() -> None:
    world = routed_world()
    world.change_spec(tag="v1.1.0", debug=True)
    world.fail_candidate()
    world.change_spec(state=DesiredState.STOPPED)
    world.settle()
    world.change_spec(state=DesiredState.RUNNING)
    world.settle()
    assert services(world) == {GENERATED: "web"}
    world.change_spec(staging=True, relaunch="again")
    world.settle()
    assert set(services(world)) == {GENERATED, PREVIEW}
