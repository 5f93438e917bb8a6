"""What becomes of the release: each cell of the manual's table, through both doors.

The REST door is the facade's own patch of spec, the other one the manifest change that the manual
names. A simulated operator looks at both.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from typing_extensions import override

from cloister_api.schemas.containers import RelaunchRequest
from cloister_api.services.containers.spec_patches import (
    before_update,
    cancelling,
    deployed_spec,
    deploying,
    no_longer_followed,
)
from cloister_api.services.resources.deployments import InstanceUpdate
from cloister_crds.kinds import Container
from cloister_crds.kinds.container import DesiredState, UpdatePhase
from cloister_crds.kinds.request import RequestRecord
from cloister_crds.lifecycle.actions import ApiAction, refusal
from cloister_crds.lifecycle.kept_request import is_present_release, moved_tag
from cloister_crds.lifecycle.state.conditions import condition
from cloister_crds.lifecycle.state.observed import Known, NeedRelease, ReleaseFacts
from tests.support.builders.resources import COMMIT, SETTINGS
from tests.support.builders.world import SimulatedCluster
from tests.support.lifecycles.release_table import CELLS, NAMED, STATES, expected_tag


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


class Manifest:
    """Changes of the manifest."""

    def __init__(self, world: SimulatedCluster) -> None:
        self.world = world
        status = world.container.status
        active = world.enclaves.get(status.active_enclave)
        self.served: RequestRecord | None = active.spec.request if active is not None else None
        self.warning: str | None = None
        self.staging: bool | None = world.container.spec.staging

    def relaunch(self, tag: str | None = None, *, staging: bool | None = None) -> None:
        """Set relaunch, and put the rest back unless a tag is named."""
        more = {} if staging is None else {"staging": staging}
        self.world.change_spec(relaunch=f"again {tag}", relaunch_staging=None, **more)
        if tag is not None:
            self.world.change_spec(tag=tag)
        elif self.served is not None and not self.world.container.spec.auto_update:
            self.world.change_spec(tag=self.served.tag)

    def stop(self) -> None:
        """Set state, and nothing else."""
        self.world.change_spec(state=DesiredState.STOPPED)

    def start(self, tag: str | None = None) -> None:
        """Set state and relaunch, and a tag if one is named."""
        more = {"tag": tag} if tag is not None else {}
        self.world.change_spec(state=DesiredState.RUNNING, relaunch="again", **more)

    def follow(self, *, wanted: bool) -> None:
        """Set autoUpdate."""
        self.world.change_spec(auto_update=wanted)

    def update_of_all(self, tag: str, *, staging: bool) -> None:
        """Set tag and relaunchStaging, as one commit for all Containers does."""
        self.world.change_spec(tag=tag, relaunch=f"all {tag}", relaunch_staging=staging)

    def cancel(self) -> None:
        """Put spec back."""
        assert self.served is not None
        self.world.change_spec(
            tag=self.served.tag,
            relaunch=self.served.relaunch,
            staging=self.staging,
            relaunch_staging=None,
        )

    def accept(self) -> None:
        """Set promote."""
        self.world.promote()


class Rest(Manifest):
    """What the facade writes."""

    def _write(self, patch: dict[str, Any]) -> None:
        spec = {**self.world.container.spec.wire(), **patch}
        given = {key: value for key, value in spec.items() if value is not None}
        read = Container.model_validate({**self.world.container.wire(), "spec": given}).spec
        self.world.change_spec(**{name: getattr(read, name) for name in type(read).model_fields})

    def _deploy(self, body: RelaunchRequest, earlier: RequestRecord | None) -> None:
        container = self.world.container
        wanted = deployed_spec(container, body, earlier)
        kept = is_present_release(container.status, wanted.tag, wanted.commit)
        need = NeedRelease(wanted.repo, wanted.tag, wanted.commit, request="", kept=kept)
        result = self.world.release(need)
        assert isinstance(result, Known), result
        assert isinstance(result.value, ReleaseFacts)
        published = self.world.published.get(wanted.tag, self.world.now)
        found = replace(result.value, published=published)
        self.warning = moved_tag(found)
        self._write({**deploying(container, body, earlier, found), "relaunch": f"again {body.tag}"})

    def _before_update(self) -> RequestRecord | None:
        return before_update(self.world.container, self.world.enclaves.values())

    @override
    def relaunch(self, tag: str | None = None, *, staging: bool | None = None) -> None:
        """POST …/relaunch."""
        body = RelaunchRequest(tag=tag, staging=staging)
        self._deploy(body, None if tag else self._before_update())

    @override
    def update_of_all(self, tag: str, *, staging: bool) -> None:
        """POST /api/deployments/:id/update."""
        self._deploy(InstanceUpdate(tag=tag, relaunch_staging=staging), None)

    @override
    def start(self, tag: str | None = None) -> None:
        """POST …/start."""
        self._deploy(RelaunchRequest(tag=tag), None)

    @override
    def stop(self) -> None:
        """POST …/stop."""
        earlier, container = self._before_update(), self.world.container
        ends = cancelling(container, earlier) if earlier is not None else {}
        self._write({**ends, "state": "Stopped"})

    @override
    def follow(self, *, wanted: bool) -> None:
        """POST …/auto-update."""
        self._write({"autoUpdate": True} if wanted else no_longer_followed(self.world.container))

    @override
    def cancel(self) -> None:
        """POST …/update/cancel."""
        earlier = self._before_update()
        assert earlier is not None
        self._write(cancelling(self.world.container, earlier))


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
    serving(world)
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
    serving(world)
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
    serving(world)
    door = Rest(world)
    door.relaunch("v1.1.0", staging=True)
    world.settle()
    ACTIONS[ends](door)
    assert world.container.spec.staging is False


@pytest.mark.parametrize("door", [Rest, Manifest])
@pytest.mark.parametrize("own", [True, False])
def test_staging_of_an_update_of_all_is_for_that_update_only(
    door: type[Manifest], *, own: bool
) -> None:
    world = SimulatedCluster()
    world.change_spec(staging=own)
    serving(world)
    door(world).update_of_all("v1.1.0", staging=not own)
    world.settle()
    assert (world.reason() == "AwaitingPromotion") is not own
    world.promote()
    world.settle()
    assert world.container.status.current_tag == "v1.1.0"
    assert waits(world, door(world), "v1.2.0") is own
