"""Decisions when Pods are lost or somebody was interrupted."""

import pytest

from cloister_crds.kinds.container import ContainerPhase, UpdatePhase, UpdateType
from cloister_crds.kinds.meta import PAUSED_ANNOTATION
from cloister_crds.lifecycle.state.conditions import holds
from cloister_crds.lifecycle.state.observed import (
    Observed,
)
from cloister_operator.rollout.decide import decide
from cloister_operator.rollout.decision import (
    ClaimHostname,
    EnsureDeployment,
    ReleaseHostname,
)
from tests.support.builders.resources import (
    DOMAIN,
    NOW,
    SETTINGS,
    claim_of,
    observed_of,
    subspec,
)
from tests.support.builders.world import SimulatedCluster

HOSTNAME = f"web.acme.{DOMAIN}"


@pytest.mark.spec("22.16")
@pytest.mark.lifecycle("pod-lost")
def test_a_lost_pod_is_replaced_without_asking_anything(serving: SimulatedCluster) -> None:
    old = serving.container.status.active_enclave
    serving.source_is_up = False
    serving.results.clear()
    serving.lose_pod(old)
    decision = serving.reconcile()
    assert decision.status.phase is ContainerPhase.DEPLOYING
    assert serving.reason() == serving.reason("Available") == "PodLost"
    serving.settle()
    (made_again,) = serving.created()
    assert made_again.copy_from == old
    assert made_again.spec.attempt == 2
    assert all(not each.needs for each in serving.decisions)
    assert holds(serving.container.status.conditions, "Ready")


def test_what_served_comes_back_while_its_update_is_on_its_way(serving: SimulatedCluster) -> None:
    old = serving.container.status.active_enclave
    serving.change_spec(tag="v1.1.0")
    for _ in range(4):
        serving.step()
    candidate = serving.container.status.candidate
    serving.lose_pod(old)
    serving.step()
    serving.step()
    update = serving.container.status.update
    assert update is not None
    assert (update.status, update.type) == (UpdatePhase.DEPLOYING, UpdateType.REPLACE)
    again = old.removesuffix("-1") + "-2"
    assert set(serving.enclaves) >= {candidate, again}
    for _ in range(6):
        serving.start(again)
        serving.set_health(again)
        serving.step()
    status = serving.container.status
    assert (status.active_enclave, status.current_tag) == (again, "v1.0.0")
    assert status.candidate == candidate
    assert holds(status.conditions, "Available")
    serving.settle()
    assert serving.container.status.current_tag == "v1.1.0"


def test_a_candidate_that_is_lost_too_often_has_failed(world: SimulatedCluster) -> None:
    for _ in range(100):
        world.step()
        world.step()
        for name in list(world.pods):
            world.lose_pod(name)
        world.advance(61)
    status = world.container.status
    assert status.phase is ContainerPhase.FAILED
    assert world.reason() == "AttemptsExhausted"
    assert "11 lost attempts" in status.message
    assert len(world.enclaves) == 1


def test_a_vanished_enclave_is_made_anew(serving: SimulatedCluster) -> None:
    serving.delete_enclave(serving.container.status.active_enclave)
    serving.pods.clear()
    serving.garbage_collect()
    serving.settle()
    assert holds(serving.container.status.conditions, "Ready")


def test_an_interrupted_making_is_completed(world: SimulatedCluster) -> None:
    world.interrupt_next = True
    world.settle()
    first, second = world.created()[:2]
    assert first.name == second.name
    assert second.file == first.file
    assert second.spec == first.spec
    assert len(world.enclaves) == 1
    assert holds(world.container.status.conditions, "Ready")


def test_an_interrupted_repetition_is_completed_from_the_one_before(
    serving: SimulatedCluster,
) -> None:
    old = serving.container.status.active_enclave
    serving.lose_pod(old)
    serving.interrupt_next = True
    serving.settle()
    first, second = serving.created()
    assert first.name == second.name
    assert first.copy_from == second.copy_from == old


def test_a_paused_container_is_left_alone(serving: SimulatedCluster) -> None:
    metadata = serving.container.metadata.model_copy(
        update={"annotations": {PAUSED_ANNOTATION: "true"}}
    )
    paused = subspec(serving.container, tag="v2").model_copy(update={"metadata": metadata})
    decision = decide(observed_of(paused), NOW)
    assert decision.rule == "paused_container_is_left_alone"
    assert (decision.actions, decision.needs) == ((), ())
    *others, shown = decision.status.conditions
    assert (shown.type, shown.reason) == ("Paused", "Paused")
    assert decision.status.model_copy(update={"conditions": tuple(others)}) == paused.status
    assert "Paused" not in {each.type for each in serving.reconcile().status.conditions}


def test_a_deployment_that_was_deleted_is_made_again(serving: SimulatedCluster) -> None:
    serving.deployment = None
    assert EnsureDeployment("acme/site") in serving.reconcile().actions


def test_a_claim_that_was_deleted_is_made_again(serving: SimulatedCluster) -> None:
    del serving.claims[HOSTNAME]
    assert ClaimHostname(HOSTNAME) in serving.reconcile().actions


def test_a_claim_that_another_container_took_is_left_to_it(serving: SimulatedCluster) -> None:
    serving.claims[HOSTNAME] = claim_of(HOSTNAME, holder="other")
    assert not [each for each in serving.reconcile().actions if isinstance(each, ClaimHostname)]


def test_host_names_of_a_debug_container_change_hands_after_the_switch(
    serving: SimulatedCluster,
) -> None:
    debug = f"web.debug.acme.{DOMAIN}"
    serving.change_spec(debug=True)
    for _ in range(4):
        serving.step()
    assert set(serving.claims) == {HOSTNAME, debug}
    assert serving.container.status.domain == HOSTNAME
    serving.settle()
    assert set(serving.claims) == {debug}
    assert serving.container.status.domain == debug
    released = [
        action
        for decision in serving.decisions
        for action in decision.actions
        if isinstance(action, ReleaseHostname)
    ]
    assert [each.hostname for each in released] == [HOSTNAME]


def test_the_history_keeps_ten(serving: SimulatedCluster) -> None:
    for number in range(13):
        serving.change_spec(tag=f"v2.{number}.0")
        serving.settle()
    history = serving.container.status.history
    assert len(history) == 10
    assert history[0].tag == "v2.11.0"


def test_a_decision_depends_on_nothing_but_what_wasobserved_of(serving: SimulatedCluster) -> None:
    serving.change_spec(tag="v1.1.0")
    observed = serving.observed()
    assert decide(observed, serving.now) == decide(observed, serving.now)


def test_without_its_organization_nothing_is_given_back(serving: SimulatedCluster) -> None:
    observed = serving.observed()
    orphan = Observed(
        container=observed.container,
        settings=SETTINGS,
        hosts=observed.hosts,
        enclaves=observed.enclaves,
        claims=observed.claims,
        service=observed.service,
        deployment=observed.deployment,
    )
    decision = decide(orphan, serving.now)
    assert decision.actions == ()
    assert decision.status.domain == HOSTNAME
    assert holds(decision.status.conditions, "Ready")


def test_a_clock_that_is_set_back_makes_no_attempt_wait_for_it(world: SimulatedCluster) -> None:
    for _ in range(6):
        world.step()
    (name,) = world.pods
    world.start(name)
    world.step()
    world.lose_pod(name)
    for _ in range(3):
        world.step()
    assert world.reason() == "PodLost"
    world.decisions.clear()
    world.step()
    assert not world.created(), "it waits before it tries again"
    world.advance(-3600)
    for _ in range(3):
        world.step()
    assert world.created()


def test_a_clock_that_is_set_back_makes_no_question_wait_for_it(world: SimulatedCluster) -> None:
    world.source_is_up = False
    world.step()
    world.step()
    assert world.reason() == "SourceUnavailable"
    world.source_is_up = True
    world.advance(-3600)
    for _ in range(6):
        world.step()
    assert world.created()
