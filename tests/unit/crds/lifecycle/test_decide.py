"""Decisions in the situations that users meet, in a simulated world."""

from datetime import timedelta
from typing import Any

import pytest

from cloister_crds.config.model import ContainerSpec
from cloister_crds.kinds.container import ContainerPhase, DesiredState, UpdatePhase, UpdateType
from cloister_crds.kinds.enclave import EnclavePhase
from cloister_crds.kinds.meta import PAUSED_ANNOTATION
from cloister_crds.kinds.organization import Limits
from cloister_crds.lifecycle.conditions import condition, holds
from cloister_crds.lifecycle.decide import decide
from cloister_crds.lifecycle.decision import (
    CreateEnclave,
    EndEnclave,
    EnsureDeployment,
    RecordDemoted,
    ReleaseHostname,
)
from cloister_crds.lifecycle.observed import (
    Failed,
    Known,
    NeedImage,
    NeedRelease,
    NeedSecretValues,
    Observed,
    SecretRefKey,
    SecretValues,
)
from tests.support.builders import (
    DOMAIN,
    IMAGE,
    NOW,
    SETTINGS,
    claim_of,
    container_of,
    enclave_of,
    file_of,
    host_of,
    image_of,
    organization_of,
    release_of,
    secret_of,
    subspec,
)
from tests.support.world import World

HOSTNAME = f"web.acme.{DOMAIN}"


@pytest.fixture
def world() -> World:
    """Answer a world in which nothing has happened."""
    return World()


@pytest.fixture
def serving(world: World) -> World:
    """Answer a world in which v1.0.0 serves."""
    world.settle()
    world.decisions.clear()
    return world


def reason(world: World, kind: str = "Ready") -> str | None:
    """Answer the reason of a condition; None = it is not there."""
    found = condition(world.container.status.conditions, kind)
    return found.reason if found else None


def made(world: World) -> list[CreateEnclave]:
    """Answer every Enclave that was made since the decisions were cleared."""
    actions = [action for decision in world.decisions for action in decision.actions]
    return [action for action in actions if isinstance(action, CreateEnclave)]


def step(world: World) -> World:
    """Do one pass after the Service has settled and what ended is gone."""
    world.publish()
    world.collect()
    world.work()
    return world


# The first start.


def test_ready_is_there_from_the_first_write(world: World) -> None:
    status = world.work().status
    assert status.observed_generation == 1
    assert status.phase is ContainerPhase.PENDING
    assert reason(world) == "Resolving"
    assert status.domain == HOSTNAME
    assert status.current_tag == "v1.0.0"


def test_the_words_follow_the_enclave(world: World) -> None:
    words = []
    for _ in range(12):
        step(world)
        for name in world.enclaves:
            world.heal(name)
            world.start(name)
        words.append(world.container.status.phase)
    assert list(dict.fromkeys(words)) == [
        ContainerPhase.PENDING,
        ContainerPhase.DEPLOYING,
        ContainerPhase.STARTED,
        ContainerPhase.READY,
    ]


def test_a_container_that_serves_has_all_facts(serving: World) -> None:
    status = serving.container.status
    assert status.phase is ContainerPhase.READY
    assert status.current_tag == "v1.0.0"
    assert status.domain == status.internal_domain == HOSTNAME
    assert status.candidate == ""
    assert status.message == ""
    assert status.resources is not None
    assert (status.resources.cpus, status.resources.memory_mb) == (2, 8192)
    assert status.host is not None
    assert status.host.name == "plain"
    assert reason(serving) == "Serving"
    assert reason(serving, "Available") == "Serving"
    assert reason(serving, "Reconciling") is None
    assert reason(serving, "Stalled") is None
    assert reason(serving, "Confidential") == "NoTee"
    assert reason(serving, "NetworkIsolated") == "SharedNetwork"
    assert reason(serving, "Unenforced") is None
    assert serving.deployment is not None


def test_what_the_host_cannot_do_is_said(world: World) -> None:
    need = NeedRelease(repo="acme/site", tag="v1.0.0", commit=None, request=_revision(world))
    world.answers[need] = Known(release_of(unenforced=("containers[0].pids_limit",)), NOW)
    world.settle()
    status = world.container.status
    assert status.unenforced == ("containers[0].pids_limit",)
    found = condition(status.conditions, "Unenforced")
    assert found is not None
    assert "containers[0].pids_limit" in found.message


def _revision(world: World) -> str:
    world.work()
    (need,) = [need for need in world.answers if isinstance(need, NeedRelease)]
    world.answers.clear()
    return need.request


# What cannot be had.


def test_an_unreachable_source_is_pending_and_asked_again(world: World) -> None:
    world.source_is_up = False
    world.work()
    decision = world.work()
    assert decision.status.phase is ContainerPhase.PENDING
    assert reason(world) == reason(world, "Reconciling") == "SourceUnavailable"
    assert decision.status.message == "no answer"
    assert decision.look_again == timedelta(seconds=10)
    assert not world.claims
    world.let(10)
    assert len(world.work().needs) == 1
    world.source_is_up = True
    world.settle()
    assert holds(world.container.status.conditions, "Ready")


def test_a_wrong_tag_stalls_without_a_child_and_is_not_asked_again(world: World) -> None:
    world.ask(tag="v9")
    world.bad_tags = {"v9"}
    world.settle()
    status = world.container.status
    assert status.phase is ContainerPhase.FAILED
    assert (reason(world), reason(world, "Stalled")) == ("TagNotFound", "TagNotFound")
    assert status.message == "no such tag"
    assert reason(world, "Reconciling") is None
    assert not world.enclaves
    assert not world.claims
    assert world.deployment is None

    world.answers.clear()
    world.decisions.clear()
    world.settle()
    assert all(not decision.needs for decision in world.decisions)
    assert world.container.status == status


def test_the_same_tag_is_asked_anew_for_a_new_request(world: World) -> None:
    world.ask(tag="v9")
    world.bad_tags = {"v9"}
    world.settle()
    world.bad_tags = set()
    world.ask(relaunch="now")
    world.settle()
    assert world.container.status.current_tag == "v9"
    assert holds(world.container.status.conditions, "Ready")


def test_a_claim_that_was_taken_before_the_failure_is_given_back(world: World) -> None:
    world.claims[HOSTNAME] = claim_of(HOSTNAME)
    world.ask(tag="v9")
    world.bad_tags = {"v9"}
    world.settle()
    assert not world.claims


def test_the_claim_of_a_container_that_ran_is_kept(serving: World) -> None:
    serving.ask(state=DesiredState.STOPPED)
    serving.settle()
    serving.bad_tags = {"v9"}
    serving.ask(state=DesiredState.RUNNING, tag="v9")
    serving.settle()
    assert reason(serving) == "TagNotFound"
    assert HOSTNAME in serving.claims


def test_a_taken_hostname_stalls_until_it_is_free(world: World) -> None:
    world.claims[HOSTNAME] = claim_of(HOSTNAME, holder="other")
    world.settle()
    assert (reason(world), reason(world, "Stalled")) == ("HostnameTaken", "HostnameTaken")
    assert not world.enclaves
    assert HOSTNAME in world.claims
    del world.claims[HOSTNAME]
    world.settle()
    assert holds(world.container.status.conditions, "Ready")


def test_a_refused_file_tells_all_its_problems() -> None:
    container = container_of()
    observed = _observed(container)
    need = decide(observed, NOW).needs[0]
    bad = release_of(file_of(cpus=3, memory=4096))
    decision = decide(_observed(container, answers={need: Known(bad, NOW)}), NOW)
    assert decision.rule == "refused_request_is_stalled"
    ready = condition(decision.status.conditions, "Ready")
    assert ready is not None
    assert ready.reason == "ResourcesNotAllowed"
    assert len(ready.message.splitlines()) == 2


def _observed(container: Any, **fields: Any) -> Observed:
    given = {
        "container": container,
        "settings": SETTINGS,
        "organization": organization_of(),
        "hosts": (host_of(),),
        "rank": 0,
        **fields,
    }
    return Observed(**given)


def test_all_images_and_secrets_are_asked_at_once() -> None:
    container = container_of(secrets=("A",))
    secrets = (secret_of("A"),)
    (release,) = decide(_observed(container, secrets=secrets), NOW).needs
    other = IMAGE.replace("web@", "db@")
    file = file_of(
        ContainerSpec(name="web", image=IMAGE, secrets=("A",)),
        ContainerSpec(name="db", image=other),
        ContainerSpec(name="twin", image=IMAGE),
    )
    answers: dict[Any, Any] = {release: Known(release_of(file), NOW)}
    needs = decide(_observed(container, secrets=secrets, answers=answers), NOW).needs
    images = {need.image for need in needs if isinstance(need, NeedImage)}
    assert images == {IMAGE, other}
    (values,) = (need for need in needs if isinstance(need, NeedSecretValues))
    assert values.refs == (SecretRefKey(name="A", secret="core-a", key="value"),)

    for need in needs:
        if isinstance(need, NeedImage):
            answers[need] = Known(image_of(need.image), NOW)
    missing = Known(SecretValues(missing=values.refs), NOW)
    waiting = decide(
        _observed(container, secrets=secrets, answers={**answers, values: missing}), NOW
    )
    ready = condition(waiting.status.conditions, "Ready")
    assert ready is not None
    assert ready.reason == "SecretValueMissing"
    assert "core-a" in ready.message
    assert waiting.look_again == timedelta(minutes=1)
    later = decide(
        _observed(container, secrets=secrets, answers={**answers, values: missing}),
        NOW + timedelta(minutes=1),
    )
    assert later.needs == (values,)


def test_a_missing_image_comes_before_an_unreachable_registry() -> None:
    container = container_of()
    (release,) = decide(_observed(container), NOW).needs
    other = IMAGE.replace("web@", "db@")
    file = file_of(ContainerSpec(name="web", image=IMAGE), ContainerSpec(name="db", image=other))
    answers: dict[Any, Any] = {release: Known(release_of(file), NOW)}
    web, db = decide(_observed(container, answers=answers), NOW).needs
    answers[web] = Failed("RegistryUnavailable", "no answer", transient=True, at=NOW)
    answers[db] = Failed("ImageNotFound", "no such digest", transient=False, at=NOW)
    decision = decide(_observed(container, answers=answers), NOW)
    ready = condition(decision.status.conditions, "Ready")
    assert ready is not None
    assert ready.reason == "ImageNotFound"
    assert ready.message == "containers[1].image: no such digest"


def test_beyond_the_limit_it_waits_for_room() -> None:
    limited = organization_of(limits=Limits(containers=1))
    beyond = decide(_observed(container_of(), organization=limited, rank=1), NOW)
    assert beyond.status.phase is ContainerPhase.FAILED
    assert holds(beyond.status.conditions, "Stalled")
    assert beyond.look_again == timedelta(minutes=1)
    container = container_of(status=beyond.status)
    room = decide(_observed(container, organization=limited, rank=0), NOW)
    assert len(room.needs) == 1


# Updates.


def test_an_update_starts_beside_what_serves(serving: World) -> None:
    old = serving.container.status.active_enclave
    serving.ask(tag="v1.1.0")
    seen = []
    for _ in range(14):
        step(serving)
        for name in serving.enclaves:
            serving.heal(name)
            serving.start(name)
        status = serving.container.status
        assert holds(status.conditions, "Available")
        assert status.phase is ContainerPhase.READY
        seen.append((status.active_enclave == old, status.update and status.update.status))
    assert list(dict.fromkeys(seen)) == [
        (True, UpdatePhase.PENDING),
        (True, UpdatePhase.STARTED),
        (False, None),
    ]
    assert serving.container.status.current_tag == "v1.1.0"
    assert [entry.outcome for entry in serving.container.status.history] == ["Served"]
    assert list(serving.enclaves) == [serving.container.status.active_enclave]


def test_the_old_one_stays_until_the_service_shows_the_new_one(serving: World) -> None:
    old = serving.container.status.active_enclave
    serving.ask(tag="v1.1.0")
    for _ in range(10):
        serving.work()
        for name in serving.enclaves:
            serving.start(name)
            serving.heal(name)
    status = serving.container.status
    assert status.active_enclave != old
    assert reason(serving) == "Routing"
    assert serving.enclaves[old].metadata.deletion_timestamp is None
    serving.publish()
    decision = serving.work()
    assert [each.name for each in decision.actions if isinstance(each, EndEnclave)] == [old]
    assert holds(serving.container.status.conditions, "Ready")


def test_a_failed_update_leaves_what_serves(serving: World) -> None:
    old = serving.container.status.active_enclave
    serving.ask(tag="v1.1.0")
    _fail_candidate(serving)
    status = serving.container.status
    assert status.active_enclave == old
    assert status.phase is ContainerPhase.READY
    assert status.current_tag == "v1.0.0"
    assert (reason(serving), reason(serving, "Stalled")) == ("BootFailed", "UpdateFailed")
    assert reason(serving, "Available") == "Serving"
    assert status.update is not None
    assert (status.update.status, status.update.type) == (UpdatePhase.FAILED, UpdateType.BLUE_GREEN)
    assert "exit code 3" in status.update.message
    memory = status.update.enclave
    assert serving.enclaves[memory].status.phase is EnclavePhase.FAILED
    assert memory not in serving.pods

    serving.ask(tag="v1.0.0")
    serving.settle()
    assert serving.container.status.update is None
    assert serving.container.status.active_enclave == old
    assert list(serving.enclaves) == [old]


def _fail_candidate(world: World) -> None:
    while world.container.status.candidate not in world.pods:
        step(world)
    step(world)
    name = world.container.status.candidate
    world.start(name)
    step(world)
    world.crash(name)
    for _ in range(4):
        step(world)


def test_an_update_whose_tag_is_wrong_fails_without_an_enclave(serving: World) -> None:
    serving.bad_tags = {"v9"}
    serving.ask(tag="v9")
    serving.settle()
    update = serving.container.status.update
    assert update is not None
    assert (update.status, update.enclave, update.message) == (
        UpdatePhase.FAILED,
        "",
        "no such tag",
    )
    assert reason(serving, "Available") == "Serving"


def test_a_newer_request_replaces_the_candidate(serving: World) -> None:
    serving.ask(tag="v1.1.0")
    for _ in range(4):
        step(serving)
    first = serving.container.status.candidate
    serving.ask(tag="v1.2.0")
    serving.settle()
    assert first not in serving.enclaves
    assert serving.container.status.current_tag == "v1.2.0"
    outcomes = {entry.enclave: entry.outcome for entry in serving.container.status.history}
    assert outcomes[first] == "Ended"


def test_a_lapsed_subscription_stops_updates_and_nothing_else(serving: World) -> None:
    old = serving.container.status.active_enclave
    serving.organization = organization_of(subscribed=False)
    serving.settle()
    assert holds(serving.container.status.conditions, "Ready")

    serving.ask(tag="v1.1.0")
    serving.settle()
    assert serving.container.status.active_enclave == old
    assert (reason(serving), reason(serving, "Stalled")) == (
        "SubscriptionRequired",
        "UpdateFailed",
    )

    serving.lose(old)
    serving.settle()
    status = serving.container.status
    assert status.active_enclave == old.removesuffix("-1") + "-2"
    assert holds(status.conditions, "Available")
    assert reason(serving) == "SubscriptionRequired"

    serving.organization = organization_of()
    serving.settle()
    assert serving.container.status.current_tag == "v1.1.0"


# Losses.


def test_a_lost_pod_is_replaced_without_asking_anything(serving: World) -> None:
    old = serving.container.status.active_enclave
    serving.source_is_up = False
    serving.answers.clear()
    serving.lose(old)
    decision = serving.work()
    assert decision.status.phase is ContainerPhase.DEPLOYING
    assert reason(serving) == reason(serving, "Available") == "PodLost"
    serving.settle()
    (made_again,) = made(serving)
    assert made_again.copy_from == old
    assert made_again.spec.attempt == 2
    assert all(not each.needs for each in serving.decisions)
    assert holds(serving.container.status.conditions, "Ready")


def test_what_served_comes_back_while_its_update_is_on_its_way(serving: World) -> None:
    old = serving.container.status.active_enclave
    serving.ask(tag="v1.1.0")
    for _ in range(4):
        step(serving)
    candidate = serving.container.status.candidate
    serving.lose(old)
    step(serving)
    step(serving)
    update = serving.container.status.update
    assert update is not None
    assert (update.status, update.type) == (UpdatePhase.DEPLOYING, UpdateType.REPLACE)
    again = old.removesuffix("-1") + "-2"
    assert set(serving.enclaves) >= {candidate, again}
    for _ in range(6):
        serving.start(again)
        serving.heal(again)
        step(serving)
    status = serving.container.status
    assert (status.active_enclave, status.current_tag) == (again, "v1.0.0")
    assert status.candidate == candidate
    assert holds(status.conditions, "Available")
    serving.settle()
    assert serving.container.status.current_tag == "v1.1.0"


def test_a_candidate_that_is_lost_too_often_has_failed(world: World) -> None:
    for _ in range(100):
        step(world)
        step(world)
        for name in list(world.pods):
            world.lose(name)
        world.let(61)
    status = world.container.status
    assert status.phase is ContainerPhase.FAILED
    assert reason(world) == "AttemptsExhausted"
    assert "11 lost attempts" in status.message
    assert len(world.enclaves) == 1


def test_a_vanished_enclave_is_made_anew(serving: World) -> None:
    serving.remove(serving.container.status.active_enclave)
    serving.pods.clear()
    serving.collect()
    serving.settle()
    assert holds(serving.container.status.conditions, "Ready")


# Failed, and relaunched.


def test_a_relaunch_of_a_failed_container_is_an_update_that_can_be_taken_back(
    world: World,
) -> None:
    _fail_candidate(world)
    (failed,) = world.enclaves
    status = world.container.status
    assert status.phase is ContainerPhase.FAILED
    assert status.update is None
    assert "exit code 3" in status.message

    world.ask(relaunch="again")
    for _ in range(3):
        step(world)
    status = world.container.status
    assert status.phase in {ContainerPhase.PENDING, ContainerPhase.DEPLOYING}
    assert status.update is not None
    assert (status.update.status, status.update.type) == (
        UpdatePhase.DEPLOYING,
        UpdateType.REPLACE,
    )
    assert failed in world.enclaves

    world.ask(relaunch=None)
    for _ in range(4):
        step(world)
    assert world.container.status.phase is ContainerPhase.FAILED
    assert list(world.enclaves) == [failed]
    assert "exit code 3" in world.container.status.message

    world.ask(relaunch="once more")
    world.settle()
    assert reason(world, "Available") == "Serving"
    assert failed not in world.enclaves


def test_a_relaunch_after_a_wrong_tag_is_an_update_too(world: World) -> None:
    world.ask(tag="v9")
    world.bad_tags = {"v9"}
    world.settle()
    world.ask(tag="v1.0.0")
    step(world)
    update = world.container.status.update
    assert update is not None
    assert update.status is UpdatePhase.DEPLOYING
    world.settle()
    assert world.container.status.update is None


def test_the_first_start_is_no_update(world: World) -> None:
    for _ in range(4):
        step(world)
        assert world.container.status.update is None


# Stop and start.


def test_a_stop_waits_for_the_last_pod(serving: World) -> None:
    serving.ask(state=DesiredState.STOPPED)
    serving.work()
    assert serving.container.status.phase is ContainerPhase.STOPPING
    assert reason(serving) == "Stopping"
    serving.work()
    assert serving.container.status.phase is ContainerPhase.STOPPING
    serving.collect()
    serving.work()
    status = serving.container.status
    assert status.phase is ContainerPhase.STOPPED
    assert holds(status.conditions, "Ready")
    assert reason(serving, "Available") == "Stopped"
    assert (status.active_enclave, status.current_tag) == ("", "v1.0.0")


def test_a_start_deploys_anew(serving: World) -> None:
    old = serving.container.status.active_enclave
    serving.ask(state=DesiredState.STOPPED)
    serving.settle()
    serving.decisions.clear()
    serving.ask(state=DesiredState.RUNNING)
    serving.settle()
    (again,) = made(serving)
    assert again.name != old
    assert again.copy_from is None
    assert serving.container.status.phase is ContainerPhase.READY


def test_a_stop_during_an_update_ends_both(serving: World) -> None:
    serving.ask(tag="v1.1.0")
    for _ in range(4):
        step(serving)
    assert len(serving.enclaves) == 2
    serving.ask(state=DesiredState.STOPPED)
    serving.settle()
    assert not serving.enclaves
    assert serving.container.status.update is None


# Interruptions and hands off.


def test_an_interrupted_making_is_completed(world: World) -> None:
    world.interrupt_next = True
    world.settle()
    first, second = made(world)[:2]
    assert first.name == second.name
    assert second.file == first.file
    assert second.spec == first.spec
    assert len(world.enclaves) == 1
    assert holds(world.container.status.conditions, "Ready")


def test_an_interrupted_repetition_is_completed_from_the_one_before(serving: World) -> None:
    old = serving.container.status.active_enclave
    serving.lose(old)
    serving.interrupt_next = True
    serving.settle()
    first, second = made(serving)
    assert first.name == second.name
    assert first.copy_from == second.copy_from == old


def test_a_paused_container_is_left_alone(serving: World) -> None:
    metadata = serving.container.metadata.model_copy(
        update={"annotations": {PAUSED_ANNOTATION: "true"}}
    )
    paused = subspec(serving.container, tag="v2").model_copy(update={"metadata": metadata})
    decision = decide(_observed(paused), NOW)
    assert decision.rule == "paused_container_is_left_alone"
    assert (decision.status, decision.actions, decision.needs) == (paused.status, (), ())


def test_a_deleted_container_only_says_that_nothing_serves_any_more() -> None:
    container = container_of()
    served = enclave_of(container, promoted=True)
    deleted = container_of(deleted=True)
    decision = decide(_observed(deleted, enclaves=(served,)), NOW)
    assert decision.actions == (RecordDemoted(served.metadata.name, NOW),)
    assert decision.status == deleted.status


def test_a_deployment_that_was_deleted_is_made_again(serving: World) -> None:
    serving.deployment = None
    assert EnsureDeployment("acme/site") in serving.work().actions


def test_host_names_of_a_debug_container_change_hands_after_the_switch(serving: World) -> None:
    debug = f"web.debug.acme.{DOMAIN}"
    serving.ask(debug=True)
    for _ in range(4):
        step(serving)
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


def test_the_history_keeps_ten(serving: World) -> None:
    for number in range(13):
        serving.ask(tag=f"v2.{number}.0")
        serving.settle()
    history = serving.container.status.history
    assert len(history) == 10
    assert history[0].tag == "v2.11.0"


def test_a_decision_depends_on_nothing_but_what_was_observed(serving: World) -> None:
    serving.ask(tag="v1.1.0")
    observed = serving.observed()
    assert decide(observed, serving.now) == decide(observed, serving.now)


def test_without_its_organization_nothing_is_given_back(serving: World) -> None:
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
