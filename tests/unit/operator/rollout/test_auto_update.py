"""Automatic updates: which release is wanted, and when the source gets a request."""

from datetime import timedelta

import pytest

from cloister_crds.kinds.container import ContainerPhase, DesiredState
from cloister_crds.kinds.meta import REQUESTED_AT_ANNOTATION
from cloister_crds.kinds.request import Variable
from cloister_crds.lifecycle.state.conditions import holds
from cloister_crds.lifecycle.state.observed import NeedLatest
from tests.support.builders.resources import SETTINGS
from tests.support.builders.world import SimulatedCluster

INTERVAL = SETTINGS.follow_interval


@pytest.fixture
def following(serving: SimulatedCluster) -> SimulatedCluster:
    """Return a world in which v1.0.0 serves and later releases are followed."""
    serving.change_spec(auto_update=True)
    serving.settle()
    serving.decisions.clear()
    return serving


def asked(world: SimulatedCluster) -> list[NeedLatest]:
    """Return the questions for the newest release since the decisions were cleared."""
    needs = (need for decision in world.decisions for need in decision.needs)
    return [need for need in needs if isinstance(need, NeedLatest)]


def pass_an_interval(world: SimulatedCluster) -> None:
    """Advance to the next interval, until nothing more happens."""
    world.now += INTERVAL
    world.settle()


def test_nothing_later_changes_nothing(following: SimulatedCluster) -> None:
    active = following.container.status.active_enclave
    pass_an_interval(following)
    status = following.container.status
    assert (status.active_enclave, status.current_tag) == (active, "v1.0.0")
    assert status.latest_release is not None
    assert (status.latest_release.tag, status.latest_release.followed) == ("v1.0.0", False)
    assert following.reason() == "Serving"


@pytest.mark.lifecycle("later-release")
def test_a_later_release_is_deployed_and_spec_is_left_alone(following: SimulatedCluster) -> None:
    following.publish_release("v1.1.0")
    pass_an_interval(following)
    status = following.container.status
    assert status.current_tag == "v1.1.0"
    assert holds(status.conditions, "Ready")
    assert following.container.spec.tag == "v1.0.0"
    assert status.latest_release is not None
    assert (status.latest_release.compared_to, status.latest_release.followed) == ("v1.0.0", True)


def test_of_releases_of_one_second_the_higher_version_is_followed(
    following: SimulatedCluster,
) -> None:
    following.published["v1.1.0"] = following.published["v1.0.0"]
    pass_an_interval(following)
    assert following.container.status.current_tag == "v1.1.0"
    following.published["v1.0.9"] = following.published["v1.0.0"]
    pass_an_interval(following)
    assert following.container.status.current_tag == "v1.1.0"


def test_the_source_is_asked_once_an_interval(following: SimulatedCluster) -> None:
    for _ in range(20):
        following.reconcile()
    assert not asked(following)
    following.now += INTERVAL
    for _ in range(20):
        following.reconcile()
    assert len(asked(following)) == 1
    decision = following.reconcile()
    assert decision.requeue_after is not None
    assert decision.requeue_after <= INTERVAL


def test_a_request_to_look_now_asks_at_once(following: SimulatedCluster) -> None:
    following.publish_release("v1.1.0")
    deployment = following.deployment
    assert deployment is not None
    meta = deployment.metadata.model_copy(update={"annotations": {REQUESTED_AT_ANNOTATION: "now"}})
    following.deployment = deployment.model_copy(update={"metadata": meta})
    following.settle()
    status = following.container.status
    assert status.current_tag == "v1.1.0"
    assert status.latest_release is not None
    assert status.latest_release.request == "now"


def test_an_earlier_tag_in_spec_does_not_go_back(following: SimulatedCluster) -> None:
    following.publish_release("v1.1.0")
    pass_an_interval(following)
    following.published["v0.9.0"] = following.published["v1.0.0"] - timedelta(days=1)
    following.change_spec(tag="v0.9.0")
    following.settle()
    assert following.container.status.current_tag == "v1.1.0"


def test_a_tag_that_is_later_than_what_was_found_is_deployed(following: SimulatedCluster) -> None:
    following.publish_release("v1.1.0")
    pass_an_interval(following)
    following.now += timedelta(seconds=5)
    following.publish_release("v2.0.0")
    following.change_spec(tag="v2.0.0")
    following.settle()
    assert following.container.status.current_tag == "v2.0.0"


def test_while_it_is_not_known_what_to_follow_nothing_changes(following: SimulatedCluster) -> None:
    following.publish_release("v1.1.0")
    pass_an_interval(following)
    active = following.container.status.active_enclave
    following.source_is_up = False
    following.change_spec(tag="v0.9.0")
    for _ in range(8):
        following.step()
    status = following.container.status
    assert (status.active_enclave, status.phase) == (active, ContainerPhase.READY)
    assert following.reason() == "SourceUnavailable"
    assert list(following.enclaves) == [active]


def test_a_source_that_is_away_changes_nothing(following: SimulatedCluster) -> None:
    following.publish_release("v1.1.0")
    pass_an_interval(following)
    following.source_is_up = False
    pass_an_interval(following)
    assert following.container.status.current_tag == "v1.1.0"
    assert following.reason() == "Serving"


def test_a_restart_does_not_go_back(following: SimulatedCluster) -> None:
    following.publish_release("v1.1.0")
    pass_an_interval(following)
    following.results.clear()
    following.decisions.clear()
    following.settle()
    assert following.created() == []
    assert following.container.status.current_tag == "v1.1.0"


def test_a_withdrawn_release_is_not_gone_back_from(following: SimulatedCluster) -> None:
    following.publish_release("v1.1.0")
    pass_an_interval(following)
    del following.published["v1.1.0"]
    pass_an_interval(following)
    assert following.container.status.current_tag == "v1.1.0"


def test_a_bad_release_fails_and_the_next_one_is_tried(following: SimulatedCluster) -> None:
    following.bad_tags = {"v1.1.0"}
    following.publish_release("v1.1.0")
    pass_an_interval(following)
    status = following.container.status
    assert (status.current_tag, following.reason("Stalled")) == ("v1.0.0", "UpdateFailed")
    following.publish_release("v1.2.0")
    pass_an_interval(following)
    assert following.container.status.current_tag == "v1.2.0"
    assert holds(following.container.status.conditions, "Ready")


def test_what_is_stopped_asks_nothing_and_starts_with_what_it_followed(
    following: SimulatedCluster,
) -> None:
    following.publish_release("v1.1.0")
    pass_an_interval(following)
    following.change_spec(state=DesiredState.STOPPED)
    following.settle()
    following.decisions.clear()
    pass_an_interval(following)
    assert not asked(following)
    following.change_spec(state=DesiredState.RUNNING)
    following.settle()
    assert following.container.status.current_tag == "v1.1.0"


@pytest.mark.spec("22.11", "23.9")
def test_switching_it_off_keeps_what_it_followed(following: SimulatedCluster) -> None:
    following.publish_release("v1.1.0")
    pass_an_interval(following)
    active = following.container.status.active_enclave
    following.change_spec(auto_update=False)
    following.settle()
    status = following.container.status
    assert (status.current_tag, status.latest_release) == ("v1.1.0", None)
    assert (status.active_enclave, status.requested_tag) == (active, "v1.1.0")
    assert holds(status.conditions, "Ready")


def test_after_it_was_switched_off_another_tag_of_spec_counts(following: SimulatedCluster) -> None:
    following.publish_release("v1.1.0")
    pass_an_interval(following)
    following.change_spec(auto_update=False)
    following.settle()
    following.change_spec(variables=(Variable(name="A", value="1"),))
    following.settle()
    assert following.container.status.current_tag == "v1.1.0"
    following.change_spec(tag="v0.9.0")
    following.settle()
    status = following.container.status
    assert (status.current_tag, status.kept_request) == ("v0.9.0", None)


def test_a_wrong_tag_in_a_new_container_is_told(world: SimulatedCluster) -> None:
    world.bad_tags = {"v9"}
    world.change_spec(tag="v9", auto_update=True)
    world.settle()
    assert world.reason() == "TagNotFound"


def test_staged_followed_releases_wait(following: SimulatedCluster) -> None:
    following.change_spec(staging=True)
    following.publish_release("v1.1.0")
    pass_an_interval(following)
    assert following.reason() == "AwaitingPromotion"
    following.promote()
    following.settle()
    assert following.container.status.current_tag == "v1.1.0"
