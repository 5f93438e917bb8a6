"""The health of a Container for Argo CD in each state, and its Events."""

from itertools import pairwise
from typing import Any

import pytest

from cloister_crds.kinds.container import DesiredState
from cloister_operator.rollout.decision import StatusEvent, status_event
from tests.support.builders.container_states import STATES, body_of
from tests.support.builders.world import SimulatedCluster
from tests.support.clients.argo import health_of


@pytest.mark.parametrize("state", [name for name, (_, _, argo) in STATES.items() if argo])
def test_argo_cd_sees_what_is_so(state: str) -> None:
    make, _, wanted = STATES[state]
    world = make()
    health, message = health_of(body_of(world.container))
    assert health == wanted
    if wanted == "Degraded":
        stalled = world.reason("Stalled")
        assert message.startswith(f"{stalled}: ")
        assert len(message) > len(f"{stalled}: ")


@pytest.mark.parametrize(
    ("body", "health"),
    [
        ({"kind": "HostnameClaim", "metadata": {"generation": 1}}, "Healthy"),
        ({"kind": "Domain", "metadata": {"generation": 1}}, "Progressing"),
        ({"kind": "Host", "metadata": {"generation": 1}, "status": {}}, "Progressing"),
    ],
)
def test_what_has_no_status_yet(body: dict[str, Any], health: str) -> None:
    assert health_of(body)[0] == health


def told(world: SimulatedCluster) -> list[StatusEvent]:
    """Return the Events of all that happened since the decisions were cleared."""
    statuses = [each.status.wire() for each in world.decisions]
    found = (status_event(before, after) for before, after in pairwise(statuses))
    return [each for each in found if each is not None]


def reasons(world: SimulatedCluster) -> list[str]:
    return [each.reason for each in told(world)]


def test_a_start_that_goes_well_is_two_events() -> None:
    world = SimulatedCluster()
    world.settle()
    assert reasons(world) == ["Deploying", "Serving"]
    assert not any(each.warning for each in told(world))


def test_an_update_is_told_from_its_begin_to_its_end(serving: SimulatedCluster) -> None:
    serving.reconcile()
    serving.change_spec(tag="v1.1.0")
    serving.settle()
    assert reasons(serving) == ["Updating", "Serving"]
    assert not any(each.warning for each in told(serving))
    assert "https://web.acme." in told(serving)[1].message


def test_a_failed_update_is_a_warning_with_its_cause(serving: SimulatedCluster) -> None:
    serving.reconcile()
    serving.change_spec(tag="v1.1.0")
    serving.fail_candidate()
    (updating, failed) = told(serving)
    assert updating.reason == "Updating"
    assert (failed.reason, failed.warning) == ("UpdateFailed", True)
    assert "exit code 3" in failed.message


def test_a_lost_pod_is_told(serving: SimulatedCluster) -> None:
    serving.reconcile()
    serving.lose_pod(serving.container.status.active_enclave)
    serving.settle()
    assert reasons(serving) == ["PodLost", "Serving"]
    assert told(serving)[0].warning


def test_what_waits_and_what_stops_is_told(serving: SimulatedCluster) -> None:
    serving.reconcile()
    serving.change_spec(staging=True, tag="v1.1.0")
    serving.settle()
    serving.change_spec(state=DesiredState.STOPPED)
    serving.settle()
    assert reasons(serving) == ["Updating", "AwaitingPromotion", "Stopped"]


def test_what_is_refused_is_a_warning() -> None:
    world = SimulatedCluster()
    world.bad_tags = {"v1.0.0"}
    world.settle()
    (event,) = told(world)
    assert (event.reason, event.warning) == ("TagNotFound", True)


def test_nothing_is_told_twice(serving: SimulatedCluster) -> None:
    status = serving.container.status.wire()
    assert status_event(status, status) is None
