"""What serves leaves a node that is drained."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.lifecycle.state.conditions import holds
from cloister_operator.rollout.decision import DeleteEnclave
from tests.support.builders.world import SimulatedCluster


@pytest.mark.lifecycle("node-cordoned")
def test_what_serves_moves_to_another_node(serving: SimulatedCluster) -> None:
    old = serving.container.status.active_enclave
    serving.cordon("node-1")
    for _ in range(12):
        serving.step()
        for name in serving.enclaves:
            serving.start(name)
            serving.set_health(name)
        status = serving.container.status
        assert status.phase is ContainerPhase.READY
        assert holds(status.conditions, "Available")
        assert status.update is None
    serving.settle()
    status = serving.container.status
    assert status.active_enclave != old
    assert list(serving.enclaves) == [status.active_enclave]
    assert serving.pods[status.active_enclave].node == "node-2"
    (made,) = serving.created()
    assert made.copy_from == old
    assert made.spec.losses == 0


def test_the_old_one_stays_until_the_new_one_is_reached(serving: SimulatedCluster) -> None:
    old = serving.container.status.active_enclave
    serving.cordon("node-1")
    ended_at = None
    for number in range(14):
        decision = serving.reconcile()
        if any(isinstance(each, DeleteEnclave) and each.name == old for each in decision.actions):
            ended_at = number
            assert serving.service is not None
            active = serving.container.status.active_enclave
            assert serving.service.selects == active != old
            assert serving.enclaves[active].status.address in serving.service.addresses
        for name in serving.enclaves:
            serving.start(name)
            serving.set_health(name)
        serving.sync_endpoints()
    assert ended_at is not None


def test_a_successor_moves_again_once_the_one_before_it_has_drained(
    serving: SimulatedCluster,
) -> None:
    """Else none would end while each is on a cordoned node again."""
    serving.settings = replace(serving.settings, drain=timedelta(seconds=10))
    old = serving.container.status.active_enclave
    serving.cordon("node-1")
    while serving.container.status.active_enclave == old:
        serving.step()
        for name in serving.enclaves:
            serving.start(name)
            serving.set_health(name)
    second = serving.container.status.active_enclave
    serving.cordon("node-2")
    for _ in range(6):
        serving.step()
    assert set(serving.enclaves) == {old, second}
    assert len(serving.created()) == 1
    assert "when the previous one has drained" in condition_message(serving)

    serving.advance(10)
    for _ in range(3):
        serving.step()
    assert old not in serving.enclaves
    assert len(serving.created()) == 2
    serving.settle()
    third = serving.container.status.active_enclave
    assert list(serving.enclaves) == [third]
    assert serving.pods[third].node == "node-1"


@pytest.mark.lifecycle("node-cordoned")
def test_without_another_node_it_serves_on(serving: SimulatedCluster) -> None:
    old = serving.container.status.active_enclave
    serving.cordon("node-1", "node-2")
    for _ in range(6):
        serving.step()
    status = serving.container.status
    assert status.active_enclave == old
    assert holds(status.conditions, "Ready")
    assert len(serving.enclaves) == 2

    serving.cordon()
    serving.settle()
    assert list(serving.enclaves) == [old]
    assert serving.container.status.active_enclave == old


def test_a_successor_that_fails_for_good_is_not_made_again(serving: SimulatedCluster) -> None:
    old = serving.container.status.active_enclave
    serving.cordon("node-1")
    serving.fail_candidate()
    serving.advance(3600)
    serving.step()
    assert serving.container.status.active_enclave == old
    assert len(serving.created()) == 1
    assert "exit code 3" in condition_message(serving)


def test_a_successor_that_is_lost_is_made_again(serving: SimulatedCluster) -> None:
    old = serving.container.status.active_enclave
    serving.cordon("node-1")
    serving.step()
    (first,) = serving.created()
    serving.step()
    serving.start(first.name)
    serving.step()
    serving.lose_pod(first.name)
    serving.step()
    serving.step()
    assert len(serving.created()) == 1
    serving.advance(11)
    serving.step()
    assert len(serving.created()) == 2
    assert serving.container.status.active_enclave == old


def test_a_new_request_during_the_move_goes_its_own_way(serving: SimulatedCluster) -> None:
    serving.cordon("node-1")
    serving.step()
    serving.change_spec(tag="v1.1.0")
    serving.settle()
    status = serving.container.status
    assert status.current_tag == "v1.1.0"
    assert serving.pods[status.active_enclave].node == "node-2"
    assert list(serving.enclaves) == [status.active_enclave]


def condition_message(world: SimulatedCluster) -> str:
    """Return the message of Ready."""
    found = next(each for each in world.container.status.conditions if each.type == "Ready")
    return found.message
