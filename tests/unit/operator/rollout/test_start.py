"""Decisions on the way to the first ready, and when it stops and starts again."""

import pytest

from cloister_crds.config.model import ContainerConfig as FileContainer
from cloister_crds.kinds import Secret
from cloister_crds.kinds.container import ContainerPhase, ContainerStatus, DesiredState
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, condition, holds, merge
from cloister_crds.lifecycle.state.observed import (
    Known,
    NeedRelease,
)
from cloister_operator.rollout.status import is_progress
from tests.support.builders.resources import (
    DOMAIN,
    IMAGE,
    NOW,
    file_of,
    release_of,
)
from tests.support.builders.world import SimulatedCluster

HOSTNAME = f"web.acme.{DOMAIN}"


@pytest.mark.lifecycle("first-ready")
def test_ready_is_there_from_the_first_write(world: SimulatedCluster) -> None:
    status = world.reconcile().status
    assert status.observed_generation == 1
    assert status.phase is ContainerPhase.DEPLOYING
    assert world.reason() == "Resolving"
    assert status.domain == HOSTNAME
    assert status.current_tag == "v1.0.0"


@pytest.mark.lifecycle("admitted", "deploying-ready")
def test_the_words_follow_the_enclave(world: SimulatedCluster) -> None:
    words = []
    for _ in range(12):
        world.step()
        for name in world.enclaves:
            world.set_health(name)
            world.start(name)
        words.append(world.container.status.phase)
    assert list(dict.fromkeys(words)) == [
        ContainerPhase.DEPLOYING,
        ContainerPhase.STARTED,
        ContainerPhase.READY,
    ]


def test_a_container_that_serves_has_all_facts(serving: SimulatedCluster) -> None:
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
    assert serving.reason() == "Serving"
    assert serving.reason("Available") == "Serving"
    assert serving.reason("Reconciling") is None
    assert serving.reason("Stalled") is None
    assert serving.reason("Confidential") == "NoTee"
    assert serving.reason("NetworkIsolated") == "SharedNetwork"
    assert serving.reason("Unenforced") is None
    assert serving.deployment is not None


def test_what_the_host_cannot_do_is_said(world: SimulatedCluster) -> None:
    need = NeedRelease(repo="acme/site", tag="v1.0.0", commit=None, request=_revision(world))
    world.results[need] = Known(release_of(unenforced=("containers[0].pids_limit",)), NOW)
    world.settle()
    status = world.container.status
    assert status.unenforced == ("containers[0].pids_limit",)
    found = condition(status.conditions, "Unenforced")
    assert found is not None
    assert "containers[0].pids_limit" in found.message


@pytest.mark.spec("24.7")
def test_the_secrets_that_the_files_name_are_shown(world: SimulatedCluster) -> None:
    for tag, name in (("v1.0.0", "tls-key"), ("v1.1.0", "other-key")):
        world.files[tag] = file_of(FileContainer(name="web", image=IMAGE, secrets=(name,)))
        reference = {"name": name, "repo": "acme/site", "secretRef": {"name": name}}
        world.secrets += (Secret.read({"metadata": {"name": name}, "spec": reference}),)
    assert world.container.status.secrets is None
    world.settle()
    assert world.container.status.secrets == ("tls-key",)
    world.change_spec(staging=True, tag="v1.1.0")
    world.settle()
    assert world.container.status.secrets == ("other-key", "tls-key")
    world.change_spec(staging=False)
    world.settle()
    assert world.container.status.secrets == ("other-key",)
    world.change_spec(state=DesiredState.STOPPED)
    world.settle()
    assert world.container.status.secrets == ("other-key",)


def _revision(world: SimulatedCluster) -> str:
    world.reconcile()
    (need,) = [need for need in world.results if isinstance(need, NeedRelease)]
    world.results.clear()
    return need.request


@pytest.mark.spec("22.1")
@pytest.mark.lifecycle("stopped")
def test_a_stop_waits_for_the_last_pod(serving: SimulatedCluster) -> None:
    serving.change_spec(state=DesiredState.STOPPED)
    serving.reconcile()
    assert serving.container.status.phase is ContainerPhase.STOPPING
    assert serving.reason() == "Stopping"
    serving.reconcile()
    assert serving.container.status.phase is ContainerPhase.STOPPING
    serving.garbage_collect()
    serving.reconcile()
    status = serving.container.status
    assert status.phase is ContainerPhase.STOPPED
    assert holds(status.conditions, "Ready")
    assert serving.reason("Available") == "Stopped"
    assert (status.active_enclave, status.current_tag) == ("", "v1.0.0")


@pytest.mark.spec("22.1")
@pytest.mark.lifecycle("stopped")
def test_a_start_deploys_anew(serving: SimulatedCluster) -> None:
    old = serving.container.status.active_enclave
    serving.change_spec(state=DesiredState.STOPPED)
    serving.settle()
    serving.decisions.clear()
    serving.change_spec(state=DesiredState.RUNNING)
    serving.settle()
    (again,) = serving.created()
    assert again.name != old
    assert again.copy_from is None
    assert serving.container.status.phase is ContainerPhase.READY


@pytest.mark.spec("22.1")
def test_a_stop_during_an_update_ends_both(serving: SimulatedCluster) -> None:
    serving.change_spec(tag="v1.1.0")
    for _ in range(4):
        serving.step()
    assert len(serving.enclaves) == 2
    serving.change_spec(state=DesiredState.STOPPED)
    serving.settle()
    assert not serving.enclaves
    assert serving.container.status.update is None


@pytest.mark.parametrize("before", [None, *ContainerPhase])
@pytest.mark.parametrize("after", list(ContainerPhase))
def test_only_the_progress_of_a_first_deployment_may_be_written_late(
    before: ContainerPhase | None, after: ContainerPhase
) -> None:
    under_way = {ContainerPhase.PENDING, ContainerPhase.DEPLOYING, ContainerPhase.STARTED}
    expected = before in {None, *under_way} and after in under_way
    assert is_progress(ContainerStatus(phase=before), ContainerStatus(phase=after)) is expected


def test_a_deployment_that_stalls_or_goes_on_is_written_at_once() -> None:
    going = ContainerStatus(phase=ContainerPhase.DEPLOYING)
    update = ConditionUpdate("Stalled", status=True, reason="LimitReached", message="No place.")
    stalled = going.model_copy(update={"conditions": merge((), [update], generation=1, now=NOW)})
    assert not is_progress(going, stalled)
    assert not is_progress(stalled, going)
