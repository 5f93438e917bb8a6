"""Updates with more than one GPU: the successor's Pod waits first, then what serves ends."""

import pytest

from cloister_crds.kinds.container import ContainerPhase, DesiredState, UpdatePhase, UpdateType
from cloister_crds.kinds.host_devices import Gpu
from cloister_crds.kinds.organization import Entitlements, Limits
from cloister_crds.lifecycle.state.conditions import holds
from tests.support.builders.resources import host_of, organization_of
from tests.support.builders.world import SimulatedCluster


@pytest.fixture
def world() -> SimulatedCluster:
    """Return a Container with eight GPUs, all that there are, that serves."""
    made = SimulatedCluster()
    made.organization = organization_of(
        entitlements=Entitlements(gpu=True), limits=Limits(gpus=(1, 8))
    )
    made.hosts = (host_of(gpu=Gpu(resource="nvidia.com/gpu")),)
    made.change_spec(gpus=8)
    made.settle()
    assert made.reason() == "Serving"
    return made


def underway(world: SimulatedCluster) -> str:
    """Return the name of the successor once there is one."""
    while not world.container.status.candidate:
        world.step()
    return world.container.status.candidate


@pytest.mark.lifecycle("recreate")
def test_the_successor_waits_before_what_serves_ends(world: SimulatedCluster) -> None:
    old = world.container.status.active_enclave
    world.change_spec(tag="v1.1.0")
    new = underway(world)
    status = world.container.status
    assert (status.phase, status.active_enclave) == (ContainerPhase.READY, old)
    assert world.enclaves[new].spec.stop_first
    assert world.enclaves[new].spec.preview == ""
    assert status.update is not None
    assert (status.update.status, status.update.type) == (
        UpdatePhase.DEPLOYING,
        UpdateType.REPLACE,
    )
    assert new not in world.pods, "nobody waits for the GPUs yet"
    world.reconcile()
    world.start(new)
    assert world.pods[new].node == "", "the GPUs are not free"
    status = world.container.status
    assert (status.phase, status.active_enclave) == (ContainerPhase.DEPLOYING, "")
    assert world.reason("Available") == "StopFirst"
    assert not holds(status.conditions, "Available")
    assert status.current_tag == "v1.0.0", "it is what served last"
    world.settle()
    status = world.container.status
    assert (status.phase, status.current_tag, status.active_enclave) == (
        ContainerPhase.READY,
        "v1.1.0",
        new,
    )
    assert status.update is None
    assert list(world.enclaves) == [new]
    phases = [each.status.phase for each in world.decisions]
    assert ContainerPhase.FAILED not in phases


def test_updates_that_cannot_start_stop_nothing(world: SimulatedCluster) -> None:
    old = world.container.status.active_enclave
    world.bad_tags = {"v9"}
    world.change_spec(tag="v9")
    world.settle()
    status = world.container.status
    assert (status.phase, status.active_enclave) == (ContainerPhase.READY, old)
    assert status.update is not None
    assert (status.update.status, status.update.type) == (UpdatePhase.FAILED, UpdateType.REPLACE)
    assert world.reason("Stalled") == "UpdateFailed"


@pytest.mark.lifecycle("first-failed")
def test_one_that_fails_leaves_the_container_failed(world: SimulatedCluster) -> None:
    world.change_spec(tag="v1.1.0")
    new = underway(world)
    while world.pods.keys() != {new}:
        world.step()
    world.start(new)
    world.step()
    world.fail_container(new)
    for _ in range(4):
        world.step()
    status = world.container.status
    assert (status.phase, status.active_enclave, status.update) == (
        ContainerPhase.FAILED,
        "",
        None,
    )
    assert world.reason("Stalled") == "BootFailed"
    world.change_spec(tag="v1.2.0")
    world.settle()
    assert world.container.status.current_tag == "v1.2.0"


def test_spec_put_back_before_the_stop_keeps_what_serves(world: SimulatedCluster) -> None:
    old = world.container.status.active_enclave
    world.change_spec(tag="v1.1.0")
    underway(world)
    world.change_spec(tag="v1.0.0")
    world.settle()
    assert world.container.status.active_enclave == old
    assert list(world.enclaves) == [old]


def test_spec_put_back_after_the_stop_starts_it_anew(world: SimulatedCluster) -> None:
    old = world.container.status.active_enclave
    world.change_spec(tag="v1.1.0")
    new = underway(world)
    for _ in range(10):
        world.reconcile()
        world.garbage_collect()
    assert old not in world.enclaves
    assert new in world.pods
    world.change_spec(tag="v1.0.0")
    world.settle()
    status = world.container.status
    assert (status.phase, status.current_tag) == (ContainerPhase.READY, "v1.0.0")
    assert status.active_enclave not in {old, new}


@pytest.mark.parametrize(("before", "after"), [(8, 1), (1, 8)])
def test_it_is_enough_that_one_of_the_two_has_several(before: int, after: int) -> None:
    world = SimulatedCluster()
    world.organization = organization_of(
        entitlements=Entitlements(gpu=True), limits=Limits(gpus=(1, 8))
    )
    world.hosts = (host_of(gpu=Gpu(resource="nvidia.com/gpu")),)
    world.change_spec(gpus=before)
    world.settle()
    world.change_spec(gpus=after)
    assert world.enclaves[underway(world)].spec.stop_first
    world.settle()
    (enclave,) = world.enclaves.values()
    assert enclave.spec.summary.gpus == after
    assert world.reason() == "Serving"


def test_a_lost_pod_of_what_is_replaced_is_not_waited_for(world: SimulatedCluster) -> None:
    old = world.container.status.active_enclave
    world.change_spec(tag="v1.1.0")
    new = underway(world)
    world.lose_pod(old)
    world.settle()
    assert world.container.status.active_enclave == new


def test_it_is_stopped_and_started_as_any_other(world: SimulatedCluster) -> None:
    world.change_spec(state=DesiredState.STOPPED)
    world.settle()
    world.change_spec(state=DesiredState.RUNNING, tag="v1.1.0")
    world.settle()
    (enclave,) = world.enclaves.values()
    assert not enclave.spec.stop_first, "nothing ran before it"
    assert world.reason() == "Serving"


def test_a_default_of_staging_counts_as_false(world: SimulatedCluster) -> None:
    status = world.container.status.model_copy(update={"staging": True})
    world.container = world.container.model_copy(update={"status": status})
    world.change_spec(tag="v1.1.0")
    world.settle()
    assert (world.reason(), world.container.status.current_tag) == ("Serving", "v1.1.0")


@pytest.mark.lifecycle("recreate")
def test_nothing_is_staged(world: SimulatedCluster) -> None:
    old = world.container.status.active_enclave
    world.change_spec(staging=True, tag="v1.1.0")
    world.settle()
    assert world.container.status.active_enclave == old
    assert world.reason() == "StagingNotPossible"
    assert world.reason("Stalled") == "UpdateFailed"
    assert "staging to false" in world.container.status.message
    world.change_spec(staging=False)
    world.settle()
    assert world.container.status.current_tag == "v1.1.0"
    assert world.reason() == "Serving"
