"""What becomes of the release: each cell of the manual's table, through both doors.

The REST door is the facade's own patch of spec, the other one the manifest change that the manual
names. A simulated operator looks at both.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest

from cloister_crds.kinds.container import DesiredState, UpdatePhase
from cloister_crds.lifecycle.actions import ApiAction, refusal
from cloister_crds.lifecycle.state.conditions import condition
from tests.support.builders.resources import COMMIT, SETTINGS
from tests.support.builders.world import SimulatedCluster
from tests.support.lifecycles.release_table import CELLS, NAMED, STATES, expected_tag
from tests.support.lifecycles.simulated_doors import Manifest, Rest


def serving(world: SimulatedCluster) -> None:
    """Let v1.0.0 serve."""
    world.settle()


def following(world: SimulatedCluster) -> None:
    """Let v1.1.0 serve because it is followed."""
    world.settle()
    world.change_spec(auto_update=True)
    publish(world)
    world.settle()
    assert world.container.status.current_tag == "v1.1.0"


def updating(world: SimulatedCluster) -> None:
    """Let an update to v1.1.0 be on its way."""
    world.settle()
    world.change_spec(tag="v1.1.0", relaunch="update")
    for _ in range(6):
        world.step()
    assert world.container.status.update is not None


def waiting(world: SimulatedCluster) -> None:
    """Let an update to v1.1.0 wait for promotion."""
    world.change_spec(staging=True)
    world.settle()
    world.change_spec(tag="v1.1.0", relaunch="update")
    world.settle()
    assert world.reason() == "AwaitingPromotion"


def update_failed(world: SimulatedCluster) -> None:
    """Let an update to v1.1.0 have failed."""
    updating(world)
    world.fail_candidate()
    update = world.container.status.update
    assert update is not None
    assert update.status is UpdatePhase.FAILED


def never_served(world: SimulatedCluster) -> None:
    """Let the first attempt have failed."""
    world.fail_candidate()
    assert world.container.status.phase == "failed"


BEFORE: dict[str, Callable[[SimulatedCluster], None]] = dict(
    zip(
        ("serving", "following", "updating", "update waits", "update failed", "never served"),
        (serving, following, updating, waiting, update_failed, never_served),
        strict=True,
    )
)


def publish(world: SimulatedCluster) -> None:
    """Publish v1.1.0, and let the interval of lookups pass."""
    world.publish_release("v1.1.0")
    world.now += SETTINGS.follow_interval


def stop_and_start(door: Manifest, tag: str | None = None) -> None:
    """Stop, wait, and start."""
    door.stop()
    door.world.settle()
    assert door.world.container.status.phase == "stopped"
    door.start(tag)


def switch_on(door: Manifest) -> None:
    """Switch automatic updates on, with v1.1.0 as the newest release."""
    publish(door.world)
    door.follow(wanted=True)


def update_instance(door: Manifest) -> None:
    """Relaunch as the update of a deployment does, which skips what is updating."""
    update = door.world.container.status.update
    if update is None or update.status is UpdatePhase.FAILED:
        door.relaunch(NAMED)


ACTIONS: dict[str, Callable[[Manifest], None]] = {
    "relaunch": lambda door: door.relaunch(),
    "relaunch with a tag": lambda door: door.relaunch(NAMED),
    "stop": lambda door: door.stop(),
    "start after that": stop_and_start,
    "start with a tag after that": lambda door: stop_and_start(door, NAMED),
    "auto-update on": switch_on,
    "auto-update off": lambda door: door.follow(wanted=False),
    "cancel": lambda door: door.cancel(),
    "accept": lambda door: door.accept(),
    "update of the deployment": update_instance,
}
ASKED = {"cancel": ApiAction.CANCEL, "accept": ApiAction.ACCEPT}


def test_the_table_has_these_actions_and_states() -> None:
    assert tuple(BEFORE) == STATES
    assert set(CELLS) == {(action, state) for action in ACTIONS for state in BEFORE}


@pytest.mark.spec("22.9")
@pytest.mark.parametrize("door", [Rest, Manifest])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("action", ACTIONS)
def test_each_cell_of_the_release(action: str, state: str, door: type[Manifest]) -> None:
    world = SimulatedCluster()
    BEFORE[state](world)
    word, status = CELLS[action, state], world.container.status
    tag = expected_tag(word, state)
    if tag is None:
        assert status.phase is not None
        shown = status.update.status if status.update is not None else None
        assert refusal(ASKED[action], status.phase, shown) is not None
        return
    ACTIONS[action](door(world))
    world.settle()
    status = world.container.status
    assert status.requested_tag == tag
    if word == "present":
        assert status.current_tag == tag
        # A relaunch of what serves is an update too; with staging it waits.
        assert status.update is None or status.update.tag == tag
    if action == "stop":
        assert (status.phase, status.update) == ("stopped", None)


@pytest.mark.spec("22.10")
@pytest.mark.parametrize("door", [Rest, Manifest])
def test_a_start_after_a_failed_start_brings_back_what_served(door: type[Manifest]) -> None:
    world = SimulatedCluster()
    serving(world)
    door(world).stop()
    world.settle()
    door(world).start("v1.1.0")
    world.fail_candidate()
    status = world.container.status
    assert (status.phase, status.current_tag, status.requested_tag) == (
        "failed",
        "v1.0.0",
        "v1.1.0",
    )
    stop_and_start(door(world))
    world.settle()
    assert world.container.status.current_tag == "v1.0.0"


@pytest.mark.spec("22.11")
@pytest.mark.parametrize("door", [Rest, Manifest])
def test_a_stop_ends_an_automatic_update_and_the_next_release_is_another_one(
    door: type[Manifest],
) -> None:
    world = SimulatedCluster()
    following(world)
    world.change_spec(staging=True)
    world.settle()
    world.now += timedelta(seconds=1)
    world.publish_release("v1.2.0")
    world.now += SETTINGS.follow_interval
    world.settle()
    assert world.reason() == "AwaitingPromotion"
    stop_and_start(door(world))
    world.settle()
    status = world.container.status
    assert (status.current_tag, status.update) == ("v1.1.0", None)
    assert world.container.spec.auto_update is (door is Manifest)


def test_a_tag_that_is_set_while_it_is_stopped_is_what_starts() -> None:
    world = SimulatedCluster()
    waiting(world)
    world.change_spec(state=DesiredState.STOPPED)
    world.settle()
    world.change_spec(tag="v1.2.0")
    world.settle()
    assert world.container.status.requested_tag == "v1.2.0"
    world.change_spec(state=DesiredState.RUNNING)
    world.settle()
    assert world.container.status.current_tag == "v1.2.0"


@pytest.mark.spec("22.10")
def test_what_a_stop_ended_is_told_until_spec_is_put_back() -> None:
    world = SimulatedCluster()
    update_failed(world)
    stop_and_start(Manifest(world))
    world.settle()
    status = world.container.status
    assert (world.reason(), world.reason("Stalled")) == ("UpdateEnded", "UpdateEnded")
    assert "tag v1.1.0" in status.message
    active = status.active_enclave
    world.change_spec(tag="v1.0.0")
    world.settle()
    status = world.container.status
    assert (world.reason(), status.active_enclave) == ("Serving", active)
    assert status.kept_request is None


MOVED = "2" * 40


@pytest.mark.parametrize("door", [Rest, Manifest])
@pytest.mark.parametrize("action", ["relaunch", "start after that"])
@pytest.mark.parametrize("state", ["serving", "following", "updating", "update failed"])
def test_what_names_no_tag_keeps_the_commit_of_a_tag_that_moved(
    state: str, action: str, door: type[Manifest]
) -> None:
    world = SimulatedCluster()
    BEFORE[state](world)
    tag, before = world.container.status.current_tag, world.container.status.active_enclave
    world.commits[tag] = MOVED
    changer = door(world)
    ACTIONS[action](changer)
    world.settle()
    status = world.container.status
    assert (status.current_tag, status.current_commit) == (tag, COMMIT)
    assert status.active_enclave != before
    found = condition(status.conditions, "TagMoved")
    assert found is not None
    assert (found.status, found.reason) == ("True", "TagMoved")
    assert COMMIT in found.message
    assert MOVED in found.message
    assert changer.warning in {None, found.message}
    assert (changer.warning is None) is (door is Manifest)


def test_a_relaunch_that_names_the_tag_deploys_the_commit_that_it_points_to() -> None:
    world = SimulatedCluster()
    serving(world)
    world.commits["v1.0.0"] = MOVED
    Rest(world).relaunch()
    world.settle()
    assert world.reason("TagMoved") == "TagMoved"
    Rest(world).relaunch("v1.0.0")
    world.settle()
    assert world.container.status.current_commit == MOVED
    assert world.reason("TagMoved") is None


def test_a_manifest_deploys_the_other_commit_by_naming_it() -> None:
    world = SimulatedCluster()
    serving(world)
    world.commits["v1.0.0"] = MOVED
    world.change_spec(relaunch="again")
    world.settle()
    world.results.clear()
    world.settle()
    assert world.reason("TagMoved") == "TagMoved"
    world.change_spec(commit="3" * 40)
    world.settle()
    assert world.reason("Ready") == "TagMoved"
    world.change_spec(commit=MOVED)
    world.settle()
    assert (world.reason(), world.container.status.current_commit) == ("Serving", MOVED)
    assert world.reason("TagMoved") is None


def test_a_pin_of_what_never_served_is_not_deployed_after_its_tag_moved() -> None:
    world = SimulatedCluster()
    world.change_spec(commit=COMMIT)
    world.commits["v1.0.0"] = MOVED
    world.settle()
    assert (world.container.status.phase, world.reason()) == ("failed", "TagMoved")


@pytest.mark.parametrize("tag", ["v1.0.0", "v1.1.0"])
def test_the_lookup_of_automatic_updates_finds_that_a_tag_moved(tag: str) -> None:
    world = SimulatedCluster()
    if tag == "v1.1.0":
        following(world)
    else:
        serving(world)
        world.change_spec(auto_update=True)
        world.settle()
    active = world.container.status.active_enclave
    world.commits[tag] = MOVED
    world.now += SETTINGS.follow_interval
    world.settle()
    assert world.reason("TagMoved") == "TagMoved"
    assert world.container.status.active_enclave == active
    world.commits[tag] = COMMIT
    world.now += SETTINGS.follow_interval
    world.settle()
    assert world.reason("TagMoved") is None
