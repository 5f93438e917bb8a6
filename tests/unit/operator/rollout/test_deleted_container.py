"""A Container that is being deleted: its enclaves end, and their run time with their Pods."""

import pytest

from cloister_crds.kinds.container import ContainerPhase, DesiredState
from cloister_crds.kinds.meta import PAUSED_ANNOTATION
from cloister_operator.rollout.decision import DeleteEnclave, DeleteService, RecordDemoted
from tests.support.builders.world import SimulatedCluster


def delete(world: SimulatedCluster, *, paused: bool = False) -> None:
    """Delete the Container while a finalizer of somebody else holds it."""
    metadata = world.container.metadata.model_copy(
        update={
            "deletion_timestamp": world.now,
            "finalizers": ("evil.example/keep",),
            "annotations": {PAUSED_ANNOTATION: "true"} if paused else {},
        }
    )
    world.container = world.container.model_copy(update={"metadata": metadata})


@pytest.fixture
def serving() -> SimulatedCluster:
    world = SimulatedCluster()
    world.settle()
    return world


@pytest.mark.lifecycle("deleted")
@pytest.mark.parametrize("paused", [False, True])
def test_what_a_finalizer_holds_ends_all_the_same(
    serving: SimulatedCluster, *, paused: bool
) -> None:
    name = serving.container.status.active_enclave
    delete(serving, paused=paused)
    actions = serving.reconcile().actions
    kinds = [type(each) for each in actions]
    # Requests end first, then the time that is billed, then the enclave.
    assert kinds == [DeleteService, RecordDemoted, DeleteEnclave]
    assert serving.container.status.phase is ContainerPhase.STOPPING
    assert "its enclaves are deleted first" in serving.container.status.conditions[0].message
    serving.settle()
    assert (serving.enclaves, serving.pods) == ({}, {})
    assert name not in serving.container.status.active_enclave
    assert serving.reason() == "Deleting"
    assert "evil.example/keep" in serving.container.status.conditions[0].message


def test_a_stopped_enclave_serves_until_its_pod_is_gone(serving: SimulatedCluster) -> None:
    name = serving.container.status.active_enclave
    serving.change_spec(state=DesiredState.STOPPED)
    for _ in range(5):
        serving.reconcile()
    assert serving.enclaves[name].metadata.deletion_timestamp is not None
    assert name in serving.pods
    serving.advance(30)
    assert not [each for each in serving.reconcile().actions if isinstance(each, RecordDemoted)]
    del serving.pods[name]
    serving.advance(5)
    (ended,) = [each for each in serving.reconcile().actions if isinstance(each, RecordDemoted)]
    assert (ended.enclave, ended.at) == (name, serving.now)
