"""Staging of relaunches and of updates of all instances, through both doors, as the manual says."""

import pytest

from tests.support.builders.world import SimulatedCluster
from tests.support.lifecycles.simulated_doors import Manifest, Rest


def waits(world: SimulatedCluster, door: Manifest, tag: str) -> bool:
    """Return whether an update without a word about staging waits, and let it be promoted."""
    door.relaunch(tag)
    world.settle()
    found = world.reason() == "AwaitingPromotion"
    if found:
        world.promote()
        world.settle()
    assert (world.reason(), world.container.status.current_tag) == ("Serving", tag)
    return found


@pytest.mark.parametrize("door", [Rest, Manifest])
@pytest.mark.parametrize("own", [True, False])
def test_staging_of_a_relaunch_is_the_containers_own_from_then_on(
    door: type[Manifest], *, own: bool
) -> None:
    world = SimulatedCluster()
    world.change_spec(staging=own)
    world.settle()
    changer = door(world)
    changer.relaunch("v1.1.0", staging=not own)
    world.settle()
    if own:
        assert world.container.status.current_tag == "v1.1.0"
    else:
        assert world.reason() == "AwaitingPromotion"
        world.promote()
        world.settle()
    assert waits(world, door(world), "v1.2.0") is not own


@pytest.mark.parametrize("door", [Rest, Manifest])
def test_a_cancel_restores_staging(door: type[Manifest]) -> None:
    world = SimulatedCluster()
    world.change_spec(staging=False)
    world.settle()
    changer = door(world)
    changer.relaunch("v1.1.0", staging=True)
    world.settle()
    changer.relaunch("v1.2.0")
    world.settle()
    assert world.reason() == "AwaitingPromotion"
    changer.cancel()
    world.settle()
    assert (world.reason(), world.container.spec.staging) == ("Serving", False)
    assert not waits(world, door(world), "v1.1.0")


@pytest.mark.parametrize("ends", ["stop", "relaunch"])
def test_what_ends_an_update_over_rest_restores_staging(ends: str) -> None:
    world = SimulatedCluster()
    world.change_spec(staging=False)
    world.settle()
    door = Rest(world)
    door.relaunch("v1.1.0", staging=True)
    world.settle()
    door.stop() if ends == "stop" else door.relaunch()
    assert world.container.spec.staging is False


@pytest.mark.parametrize("door", [Rest, Manifest])
@pytest.mark.parametrize("own", [True, False])
def test_staging_of_an_update_of_all_is_for_that_update_only(
    door: type[Manifest], *, own: bool
) -> None:
    world = SimulatedCluster()
    world.change_spec(staging=own)
    world.settle()
    door(world).update_of_all("v1.1.0", staging=not own)
    world.settle()
    assert (world.reason() == "AwaitingPromotion") is not own
    world.promote()
    world.settle()
    assert world.container.status.current_tag == "v1.1.0"
    assert waits(world, door(world), "v1.2.0") is own
