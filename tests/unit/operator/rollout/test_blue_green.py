"""Decisions while another request is wanted than what serves or failed."""

import pytest

from cloister_crds.kinds.container import (
    ContainerPhase,
    DesiredState,
    UpdatePhase,
    UpdateType,
)
from cloister_crds.kinds.enclave import EnclavePhase
from cloister_crds.kinds.host_devices import Gpu
from cloister_crds.kinds.organization import Entitlements, Limits
from cloister_crds.lifecycle.state.conditions import holds
from cloister_operator.rollout.decision import (
    DeleteEnclave,
)
from tests.support.builders.resources import (
    host_of,
    organization_of,
)
from tests.support.builders.world import SimulatedCluster


@pytest.mark.spec("22.1")
@pytest.mark.lifecycle("blue-green")
def test_an_update_starts_beside_what_serves(serving: SimulatedCluster) -> None:
    old = serving.container.status.active_enclave
    serving.change_spec(tag="v1.1.0")
    seen = []
    for _ in range(14):
        serving.step()
        for name in serving.enclaves:
            serving.set_health(name)
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
    (entry,) = serving.container.status.history
    assert entry.outcome == "Served"
    assert entry.promoted_at is not None
    assert entry.promoted_at <= entry.at
    assert entry.started_at is not None
    assert list(serving.enclaves) == [serving.container.status.active_enclave]


@pytest.mark.lifecycle("desired")
def test_the_old_one_stays_until_the_service_shows_the_new_one(serving: SimulatedCluster) -> None:
    old = serving.container.status.active_enclave
    serving.change_spec(tag="v1.1.0")
    for _ in range(10):
        serving.reconcile()
        for name in serving.enclaves:
            serving.start(name)
            serving.set_health(name)
    status = serving.container.status
    assert status.active_enclave != old
    assert serving.reason() == "Routing"
    assert serving.enclaves[old].metadata.deletion_timestamp is None
    serving.sync_endpoints()
    assert not any(isinstance(each, DeleteEnclave) for each in serving.reconcile().actions)
    decision = serving.reconcile()
    assert [each.name for each in decision.actions if isinstance(each, DeleteEnclave)] == [old]
    assert holds(serving.container.status.conditions, "Ready")


def test_one_enclave_says_that_it_serves_also_after_the_switch(serving: SimulatedCluster) -> None:
    serving.change_spec(tag="v1.1.0")
    beside = False
    for _ in range(14):
        serving.step()
        for name in serving.enclaves:
            serving.set_health(name)
            serving.start(name)
        seen = [name for name, each in serving.enclaves.items() if each.status.serving]
        beside = beside or len(serving.enclaves) > len(seen) == 1
        assert len(seen) <= 1
    assert beside
    assert seen == [serving.container.status.active_enclave]
    assert serving.container.status.current_tag == "v1.1.0"


def test_what_an_earlier_release_promoted_says_that_it_serves(serving: SimulatedCluster) -> None:
    name = serving.container.status.active_enclave
    enclave = serving.enclaves[name]
    before = enclave.status.model_copy(update={"serving": False})
    serving.enclaves[name] = enclave.model_copy(update={"status": before})
    serving.reconcile()
    after = serving.enclaves[name].status
    assert after.serving
    assert after.promoted_at == before.promoted_at
    assert not serving.reconcile().actions


def test_what_a_stop_ends_is_written_down_before(serving: SimulatedCluster) -> None:
    """An operator killed after the deletion still knows which tag was there."""
    old, tag = serving.container.status.active_enclave, serving.container.status.current_tag
    serving.change_spec(state=DesiredState.STOPPED)
    for _ in range(10):
        written = {each.enclave for each in serving.container.status.history}
        ends = [each for each in serving.reconcile().actions if isinstance(each, DeleteEnclave)]
        if ends:
            break
    assert [each.name for each in ends] == [old]
    assert old in written
    assert serving.container.status.current_tag == tag


@pytest.mark.spec("22.1")
@pytest.mark.lifecycle("update-failed")
def test_a_failed_update_leaves_what_serves(serving: SimulatedCluster) -> None:
    old = serving.container.status.active_enclave
    serving.change_spec(tag="v1.1.0")
    serving.fail_candidate()
    status = serving.container.status
    assert status.active_enclave == old
    assert status.phase is ContainerPhase.READY
    assert status.current_tag == "v1.0.0"
    assert (serving.reason(), serving.reason("Stalled")) == ("BootFailed", "UpdateFailed")
    assert serving.reason("Available") == "Serving"
    assert status.update is not None
    assert (status.update.status, status.update.type) == (UpdatePhase.FAILED, UpdateType.BLUE_GREEN)
    assert "exit code 3" in status.update.message
    memory = status.update.enclave
    assert serving.enclaves[memory].status.phase is EnclavePhase.FAILED
    assert memory not in serving.pods

    serving.change_spec(tag="v1.0.0")
    serving.settle()
    assert serving.container.status.update is None
    assert serving.container.status.active_enclave == old
    assert list(serving.enclaves) == [old]


def test_an_update_whose_tag_is_wrong_fails_without_an_enclave(serving: SimulatedCluster) -> None:
    serving.bad_tags = {"v9"}
    serving.change_spec(tag="v9")
    serving.settle()
    update = serving.container.status.update
    assert update is not None
    assert (update.status, update.enclave, update.message) == (
        UpdatePhase.FAILED,
        "",
        "no such tag",
    )
    assert serving.reason("Available") == "Serving"


@pytest.mark.spec("22.1")
@pytest.mark.lifecycle("newer-request")
def test_a_newer_request_replaces_the_candidate(serving: SimulatedCluster) -> None:
    serving.change_spec(tag="v1.1.0")
    for _ in range(4):
        serving.step()
    first = serving.container.status.candidate
    serving.change_spec(tag="v1.2.0")
    serving.settle()
    assert first not in serving.enclaves
    assert serving.container.status.current_tag == "v1.2.0"
    outcomes = {entry.enclave: entry.outcome for entry in serving.container.status.history}
    assert outcomes[first] == "Ended"


@pytest.mark.spec("22.16")
def test_a_lapsed_subscription_stops_updates_and_nothing_else(serving: SimulatedCluster) -> None:
    old = serving.container.status.active_enclave
    serving.organization = organization_of(subscribed=False)
    serving.settle()
    assert holds(serving.container.status.conditions, "Ready")

    serving.change_spec(tag="v1.1.0")
    serving.settle()
    assert serving.container.status.active_enclave == old
    assert (serving.reason(), serving.reason("Stalled")) == (
        "SubscriptionRequired",
        "UpdateFailed",
    )

    serving.lose_pod(old)
    serving.settle()
    status = serving.container.status
    assert status.active_enclave == old.removesuffix("-1") + "-2"
    assert holds(status.conditions, "Available")
    assert serving.reason() == "SubscriptionRequired"

    serving.organization = organization_of()
    serving.settle()
    assert serving.container.status.current_tag == "v1.1.0"


@pytest.mark.spec("22.1", "22.3")
@pytest.mark.lifecycle("relaunch-of-failed")
def test_a_relaunch_of_a_failed_container_is_an_update_that_can_be_taken_back(
    world: SimulatedCluster,
) -> None:
    world.fail_candidate()
    (failed,) = world.enclaves
    status = world.container.status
    assert status.phase is ContainerPhase.FAILED
    assert status.update is None
    assert "exit code 3" in status.message

    world.change_spec(relaunch="again")
    for _ in range(3):
        world.step()
    status = world.container.status
    assert status.phase in {ContainerPhase.PENDING, ContainerPhase.DEPLOYING}
    assert status.update is not None
    assert (status.update.status, status.update.type) == (
        UpdatePhase.DEPLOYING,
        UpdateType.REPLACE,
    )
    assert failed in world.enclaves

    world.change_spec(relaunch=None)
    for _ in range(4):
        world.step()
    assert world.container.status.phase is ContainerPhase.FAILED
    assert list(world.enclaves) == [failed]
    assert "exit code 3" in world.container.status.message

    world.change_spec(relaunch="once more")
    world.settle()
    assert world.reason("Available") == "Serving"
    assert failed not in world.enclaves


def test_a_relaunch_after_a_wrong_tag_is_an_update_too(world: SimulatedCluster) -> None:
    world.change_spec(tag="v9")
    world.bad_tags = {"v9"}
    world.settle()
    world.change_spec(tag="v1.0.0")
    world.step()
    update = world.container.status.update
    assert update is not None
    assert update.status is UpdatePhase.DEPLOYING
    world.settle()
    assert world.container.status.update is None


@pytest.mark.spec("22.1")
def test_the_first_start_is_no_update(world: SimulatedCluster) -> None:
    for _ in range(4):
        world.step()
        assert world.container.status.update is None


@pytest.mark.spec("5.6")
@pytest.mark.lifecycle("blue-green")
def test_one_gpu_is_updated_beside_what_serves(serving: SimulatedCluster) -> None:
    serving.organization = organization_of(
        entitlements=Entitlements(gpu=True), limits=Limits(gpus=(1, 8))
    )
    serving.hosts = (host_of(gpu=Gpu(resource="nvidia.com/gpu")),)
    serving.change_spec(gpus=1)
    serving.settle()
    assert serving.reason() == "Serving"
    (enclave,) = serving.enclaves.values()
    assert enclave.spec.summary.gpus == 1


def test_an_update_has_no_moment_without_something_that_serves(serving: SimulatedCluster) -> None:
    """The EndpointSlice shows the old address for a moment after the Service selects another."""
    serving.change_spec(tag="v1.1.0")
    serving.decisions.clear()
    while serving.container.status.current_tag != "v1.1.0":
        for name in list(serving.pods):
            serving.start(name)
            serving.set_health(name)
        serving.reconcile()
    serving.reconcile()
    assert serving.service is not None
    assert serving.service.selects == serving.container.status.active_enclave
    serving.reconcile()
    assert serving.reason() == "Routing"
    serving.sync_endpoints()
    serving.reconcile()
    assert all(holds(each.status.conditions, "Available") for each in serving.decisions)
    assert serving.reason() == "Serving"


@pytest.mark.lifecycle("blue-green")
def test_what_the_service_selects_stays_before_status_names_it(world: SimulatedCluster) -> None:
    while world.service is None or not world.service.addresses:
        world.step()
        for name in world.enclaves:
            world.set_health(name)
            world.start(name)
        world.sync_endpoints()
    assert world.container.status.active_enclave == ""
    first = world.service.selects
    world.change_spec(tag="v1.1.0")
    decision = world.reconcile()
    assert decision.status.active_enclave == first
    assert not any(isinstance(each, DeleteEnclave) for each in decision.actions)
    world.settle()
    assert world.container.status.current_tag == "v1.1.0"
