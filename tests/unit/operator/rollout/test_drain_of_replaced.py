"""What served stays for a while after its successor is reached: some learn of it late."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cloister_crds.kinds.container import DesiredState
from cloister_crds.lifecycle.state.conditions import holds
from tests.support.builders.resources import SETTINGS
from tests.support.builders.world import SimulatedCluster

DRAIN = timedelta(seconds=10)


def switched() -> tuple[SimulatedCluster, str]:
    """Build a cluster in which v1.1.0 has just taken over, and return who served before."""
    world = SimulatedCluster(replace(SETTINGS, drain=DRAIN))
    world.settle()
    first = world.container.status.active_enclave
    world.change_spec(tag="v1.1.0")
    while not is_reached(world):
        for name in list(world.pods):
            world.start(name)
            world.set_health(name)
        world.step()
    return world, first


def is_reached(world: SimulatedCluster) -> bool:
    status = world.container.status
    return status.current_tag == "v1.1.0" and holds(status.conditions, "Ready")


@pytest.mark.lifecycle("takeover")
def test_what_served_stays_until_everybody_has_learned_of_its_successor() -> None:
    world, first = switched()
    assert world.enclaves[first].metadata.deletion_timestamp is None
    assert world.enclaves[first].status.demoted_at is not None
    assert world.wake_at is not None
    world.now = world.wake_at - timedelta(seconds=1)
    world.step()
    assert world.enclaves[first].metadata.deletion_timestamp is None
    world.advance(1)
    # The deletion is recorded in one reconcile and done in the next.
    world.step()
    world.step()
    world.garbage_collect()
    assert first not in world.enclaves
    (entry,) = (each for each in world.container.status.history if each.enclave == first)
    assert entry.outcome == "Served"


def test_what_gives_way_does_not_serve_again() -> None:
    world, first = switched()
    world.change_spec(tag="v1.0.0")
    world.settle()
    status = world.container.status
    assert status.current_tag == "v1.0.0"
    assert status.active_enclave != first
    assert list(world.enclaves) == [status.active_enclave]
    assert world.enclaves[status.active_enclave].status.demoted_at is None


def test_stopping_does_not_wait() -> None:
    world, first = switched()
    world.change_spec(state=DesiredState.STOPPED)
    world.step()
    world.step()
    assert world.enclaves[first].metadata.deletion_timestamp is not None


def test_a_candidate_that_never_served_ends_at_once() -> None:
    world, _ = switched()
    world.settle()
    world.change_spec(tag="v1.2.0")
    while world.container.status.candidate not in world.enclaves:
        world.step()
    candidate = world.container.status.candidate
    world.change_spec(tag="v1.1.0")
    world.step()
    world.step()
    assert world.enclaves[candidate].metadata.deletion_timestamp is not None
