"""Decisions where something is wrong, missing or unavailable before an Enclave is created."""

from datetime import timedelta
from typing import Any

import pytest

from cloister_crds.config.model import ContainerConfig
from cloister_crds.kinds.container import ContainerPhase, DesiredState
from cloister_crds.kinds.organization import Limits
from cloister_crds.lifecycle.state.conditions import condition, holds
from cloister_crds.lifecycle.state.observed import (
    Failed,
    Known,
    NeedImage,
    NeedSecretValues,
    SecretRefKey,
    SecretValues,
)
from cloister_operator.rollout.decide import decide
from tests.support.builders.resources import (
    DOMAIN,
    IMAGE,
    NOW,
    claim_of,
    container_of,
    file_of,
    image_of,
    observed_of,
    organization_of,
    release_of,
    secret_of,
)
from tests.support.builders.world import SimulatedCluster

HOSTNAME = f"web.acme.{DOMAIN}"


@pytest.mark.lifecycle("not-admitted")
def test_an_unreachable_source_is_pending_and_asked_again(world: SimulatedCluster) -> None:
    world.source_is_up = False
    world.reconcile()
    decision = world.reconcile()
    assert decision.status.phase is ContainerPhase.PENDING
    assert world.reason() == world.reason("Reconciling") == "SourceUnavailable"
    assert decision.status.message == "no answer"
    assert decision.requeue_after == timedelta(seconds=10)
    assert not world.claims
    world.advance(10)
    assert len(world.reconcile().needs) == 1
    world.source_is_up = True
    world.settle()
    assert holds(world.container.status.conditions, "Ready")


@pytest.mark.lifecycle("not-admitted")
def test_a_wrong_tag_stalls_without_a_child_and_is_not_asked_again(world: SimulatedCluster) -> None:
    world.change_spec(tag="v9")
    world.bad_tags = {"v9"}
    world.settle()
    status = world.container.status
    assert status.phase is ContainerPhase.FAILED
    assert (world.reason(), world.reason("Stalled")) == ("TagNotFound", "TagNotFound")
    assert status.message == "no such tag"
    assert world.reason("Reconciling") is None
    assert not world.enclaves
    assert not world.claims
    assert world.deployment is None

    world.results.clear()
    world.decisions.clear()
    world.settle()
    assert all(not decision.needs for decision in world.decisions)
    assert world.container.status == status


def test_the_same_tag_is_asked_anew_for_a_new_request(world: SimulatedCluster) -> None:
    world.change_spec(tag="v9")
    world.bad_tags = {"v9"}
    world.settle()
    world.bad_tags = set()
    world.change_spec(relaunch="now")
    world.settle()
    assert world.container.status.current_tag == "v9"
    assert holds(world.container.status.conditions, "Ready")


def test_a_claim_that_was_taken_before_the_failure_is_given_back(world: SimulatedCluster) -> None:
    world.claims[HOSTNAME] = claim_of(HOSTNAME)
    world.change_spec(tag="v9")
    world.bad_tags = {"v9"}
    world.settle()
    assert not world.claims


def test_the_claim_of_a_container_that_ran_is_kept(serving: SimulatedCluster) -> None:
    serving.change_spec(state=DesiredState.STOPPED)
    serving.settle()
    serving.bad_tags = {"v9"}
    serving.change_spec(state=DesiredState.RUNNING, tag="v9")
    serving.settle()
    assert serving.reason() == "TagNotFound"
    assert HOSTNAME in serving.claims


def test_a_taken_hostname_stalls_until_it_is_free(world: SimulatedCluster) -> None:
    world.claims[HOSTNAME] = claim_of(HOSTNAME, holder="other")
    world.settle()
    assert (world.reason(), world.reason("Stalled")) == ("HostnameTaken", "HostnameTaken")
    assert not world.enclaves
    assert HOSTNAME in world.claims
    del world.claims[HOSTNAME]
    world.settle()
    assert holds(world.container.status.conditions, "Ready")


def test_a_refused_file_tells_all_its_problems() -> None:
    container = container_of()
    observed = observed_of(container)
    need = decide(observed, NOW).needs[0]
    bad = release_of(file_of(cpus=3, memory=4096))
    decision = decide(observed_of(container, results={need: Known(bad, NOW)}), NOW)
    assert decision.rule == "refused_request_is_stalled"
    ready = condition(decision.status.conditions, "Ready")
    assert ready is not None
    assert ready.reason == "ResourcesNotAllowed"
    assert len(ready.message.splitlines()) == 2


def test_all_images_and_secrets_are_asked_at_once() -> None:
    container = container_of(secrets=("A",))
    secrets = (secret_of("A"),)
    (release,) = decide(observed_of(container, secrets=secrets), NOW).needs
    other = IMAGE.replace("web@", "db@")
    file = file_of(
        ContainerConfig(name="web", image=IMAGE, secrets=("A",)),
        ContainerConfig(name="db", image=other),
        ContainerConfig(name="twin", image=IMAGE),
    )
    results: dict[Any, Any] = {release: Known(release_of(file), NOW)}
    needs = decide(observed_of(container, secrets=secrets, results=results), NOW).needs
    images = {need.image for need in needs if isinstance(need, NeedImage)}
    assert images == {IMAGE, other}
    (values,) = (need for need in needs if isinstance(need, NeedSecretValues))
    assert values.refs == (SecretRefKey(name="A", secret="core-a", key="value"),)

    for need in needs:
        if isinstance(need, NeedImage):
            results[need] = Known(image_of(need.image), NOW)
    missing = Known(SecretValues(missing=values.refs), NOW)
    waiting = decide(
        observed_of(container, secrets=secrets, results={**results, values: missing}), NOW
    )
    ready = condition(waiting.status.conditions, "Ready")
    assert ready is not None
    assert ready.reason == "SecretValueMissing"
    assert "core-a" in ready.message
    assert waiting.requeue_after == timedelta(minutes=1)
    unusable = Known(SecretValues(unusable=((values.refs[0], "is 9 bytes"),)), NOW)
    ready = condition(
        decide(
            observed_of(container, secrets=secrets, results={**results, values: unusable}), NOW
        ).status.conditions,
        "Ready",
    )
    assert ready is not None
    assert ready.reason == "SecretValueUnusable"
    assert "Secret A: the value is 9 bytes" in ready.message
    later = decide(
        observed_of(container, secrets=secrets, results={**results, values: missing}),
        NOW + timedelta(minutes=1),
    )
    assert later.needs == (values,)


def test_a_missing_image_comes_before_an_unreachable_registry() -> None:
    container = container_of()
    (release,) = decide(observed_of(container), NOW).needs
    other = IMAGE.replace("web@", "db@")
    file = file_of(
        ContainerConfig(name="web", image=IMAGE), ContainerConfig(name="db", image=other)
    )
    results: dict[Any, Any] = {release: Known(release_of(file), NOW)}
    web, db = decide(observed_of(container, results=results), NOW).needs
    results[web] = Failed("RegistryUnavailable", "no answer", transient=True, at=NOW)
    results[db] = Failed("ImageNotFound", "no such digest", transient=False, at=NOW)
    decision = decide(observed_of(container, results=results), NOW)
    ready = condition(decision.status.conditions, "Ready")
    assert ready is not None
    assert ready.reason == "ImageNotFound"
    assert ready.message == "containers[1].image: no such digest"


def test_beyond_the_limit_it_waits_for_room() -> None:
    limited = organization_of(limits=Limits(containers=1))
    beyond = decide(observed_of(container_of(), organization=limited, rank=1), NOW)
    assert beyond.status.phase is ContainerPhase.FAILED
    assert holds(beyond.status.conditions, "Stalled")
    assert beyond.requeue_after == timedelta(minutes=1)
    container = container_of(status=beyond.status)
    room = decide(observed_of(container, organization=limited, rank=0), NOW)
    assert len(room.needs) == 1
