"""Rollouts where things happen in any order: the guarantees hold, and it converges."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloister_crds.kinds.container import ContainerPhase, DesiredState
from cloister_crds.kinds.enclave import EnclavePhase
from cloister_crds.kinds.host_devices import Gpu
from cloister_crds.kinds.organization import Entitlements, Limits, Organization
from cloister_crds.lifecycle import request as requests
from cloister_crds.lifecycle.state.conditions import holds
from cloister_crds.lifecycle.state.observed import DecisionSettings, Gateway, RouteState
from cloister_operator.rollout.decision import ReleaseHostname
from tests.support.builders.resources import DOMAIN, SETTINGS, claim_of, host_of, organization_of
from tests.support.builders.world import SimulatedCluster

UNHURRIED = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
"""Slow machines are not a failure, and a test is deterministic."""
HOSTNAME = f"web.acme.{DOMAIN}"
WAYS = st.sampled_from(
    [SETTINGS, replace(SETTINGS, drain=timedelta(seconds=10), gateway=Gateway("public", "system"))]
)
"""An installation without a gateway, and one with it whose enclaves drain."""


def _names(world: SimulatedCluster) -> list[str]:
    return sorted(world.enclaves)


def _each(
    deed: Callable[[SimulatedCluster, str], None], place: int
) -> Callable[[SimulatedCluster], None]:
    def happen(world: SimulatedCluster) -> None:
        names = _names(world)
        if names:
            deed(world, names[place % len(names)])

    return happen


def _set(name: str, value: object) -> Callable[[SimulatedCluster], None]:
    return lambda world: setattr(world, name, value)


def _take_name(world: SimulatedCluster) -> None:
    world.claims.setdefault(HOSTNAME, claim_of(HOSTNAME, holder="other"))


HOSTS = (host_of(gpu=Gpu(resource="nvidia.com/gpu")),)
"""Hosts with GPUs, of which there are eight."""


def able(*, subscribed: bool = True) -> Organization:
    """Build an organization that may have GPUs."""
    return organization_of(
        subscribed=subscribed,
        entitlements=Entitlements(gpu=True),
        limits=Limits(gpus=(1, 8)),
    )


PLACES = st.integers(min_value=0, max_value=5)
HAPPENINGS = st.one_of(
    st.just(SimulatedCluster.reconcile),
    st.just(SimulatedCluster.reconcile),
    st.just(SimulatedCluster.reconcile),
    st.sampled_from(["v1.0.0", "v1.1.0", "v9.9.9"]).map(
        lambda tag: lambda w: w.change_spec(tag=tag)
    ),
    st.sampled_from(["a", "b"]).map(lambda token: lambda w: w.change_spec(relaunch=token)),
    st.sampled_from(list(DesiredState)).map(lambda state: lambda w: w.change_spec(state=state)),
    st.sampled_from([None, 1, 8]).map(lambda gpus: lambda w: w.change_spec(gpus=gpus)),
    st.booleans().map(lambda debug: lambda w: w.change_spec(debug=debug)),
    st.sampled_from([True, False, None]).map(
        lambda staging: lambda w: w.change_spec(staging=staging)
    ),
    st.just(SimulatedCluster.promote),
    st.sampled_from([(), ("node-1",), ("node-2",)]).map(lambda nodes: lambda w: w.cordon(*nodes)),
    st.sampled_from([1, 11, 61, 301, 1801]).map(lambda seconds: lambda w: w.advance(seconds)),
    # Clocks are set, forward and back.
    st.sampled_from([-3600, -60, 86_400]).map(lambda seconds: lambda w: w.advance(seconds)),
    PLACES.map(lambda place: _each(SimulatedCluster.start, place)),
    PLACES.map(lambda place: _each(SimulatedCluster.start, place)),
    PLACES.map(lambda place: _each(SimulatedCluster.set_health, place)),
    PLACES.map(lambda place: _each(SimulatedCluster.set_health, place)),
    PLACES.map(lambda place: _each(lambda w, name: w.set_health(name, well=False), place)),
    PLACES.map(lambda place: _each(SimulatedCluster.fail_container, place)),
    PLACES.map(lambda place: _each(SimulatedCluster.lose_pod, place)),
    PLACES.map(lambda place: _each(SimulatedCluster.delete_enclave, place)),
    st.just(SimulatedCluster.garbage_collect),
    st.just(SimulatedCluster.sync_endpoints),
    st.just(SimulatedCluster.sync_endpoints),
    st.booleans().map(lambda up: _set("source_is_up", up)),
    st.just(_set("interrupt_next", True)),
    st.booleans().map(lambda subscribed: _set("organization", able(subscribed=subscribed))),
    st.just(_take_name),
)


@pytest.mark.lifecycle("any-order")
@settings(parent=UNHURRIED, max_examples=150)
@given(WAYS, st.lists(HAPPENINGS, max_size=40))
def test_promises_hold_and_the_world_comes_to_rest(
    way: DecisionSettings, happenings: list[Callable[[SimulatedCluster], object]]
) -> None:
    world = SimulatedCluster(way)
    world.organization, world.hosts = able(), HOSTS
    world.bad_tags = {"v9.9.9"}
    for happening in happenings:
        happening(world)
    world.source_is_up = True
    world.organization = able()
    if HOSTNAME in world.claims and world.claims[HOSTNAME].spec.holder.name == "other":
        del world.claims[HOSTNAME]

    world.settle()
    world.report_routes(RouteState.ACCEPTED)
    world.settle()

    status = world.container.status
    again = world.reconcile()
    assert again.status == status
    assert not again.actions
    assert not world.routes or way.gateway is not None
    if world.container.spec.state is DesiredState.STOPPED:
        assert not world.routes
        assert status.phase is ContainerPhase.STOPPED
        assert not world.pods
        return
    stalled = holds(status.conditions, "Stalled")
    assert stalled != holds(status.conditions, "Ready")
    if world.reason() == "AwaitingPromotion":
        assert world.container.spec.staging
        assert set(world.enclaves) == {status.active_enclave, status.candidate}
        assert world.preview is not None
        assert world.preview.selects == status.candidate
        return
    assert world.preview is None
    if not stalled:
        serving = world.enclaves[status.active_enclave]
        assert list(world.enclaves) == [status.active_enclave]
        assert requests.same(serving.spec.request, requests.record(world.container.spec))
        assert status.phase is ContainerPhase.READY
        assert status.update is None
        assert set(world.routes) == (set(serving.spec.hostnames) if way.gateway else set())


@settings(parent=UNHURRIED, max_examples=60)
@given(st.lists(HAPPENINGS, max_size=25))
def test_a_new_good_request_always_gets_it_going_again(
    happenings: list[Callable[[SimulatedCluster], object]],
) -> None:
    world = SimulatedCluster()
    world.organization, world.hosts = able(), HOSTS
    world.bad_tags = {"v9.9.9"}
    for happening in happenings:
        happening(world)
    world.source_is_up = True
    world.organization = able()
    if HOSTNAME in world.claims and world.claims[HOSTNAME].spec.holder.name == "other":
        del world.claims[HOSTNAME]
    world.change_spec(
        tag="v2.0.0", state=DesiredState.RUNNING, relaunch="good", debug=False, staging=False
    )

    world.settle()

    status = world.container.status
    assert status.phase is ContainerPhase.READY
    assert status.current_tag == "v2.0.0"
    assert holds(status.conditions, "Ready")
    assert [each.status.phase for each in world.enclaves.values()] == [EnclavePhase.READY]


def test_the_hostname_of_a_container_that_runs_is_never_released() -> None:
    world = SimulatedCluster()
    world.settle()
    world.change_spec(tag="v1.1.0")
    world.settle()
    world.change_spec(state=DesiredState.STOPPED)
    world.settle()

    actions = [action for decision in world.decisions for action in decision.actions]
    assert not [action for action in actions if isinstance(action, ReleaseHostname)]
    assert HOSTNAME in world.claims
