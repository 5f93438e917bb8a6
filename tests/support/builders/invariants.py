"""Invariants of every decision about a Container: the guarantees of the lifecycle.

`tests.support.builders.world.SimulatedCluster` holds each decision against them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloister_crds.kinds.container import ContainerPhase, ContainerStatus, DesiredState
from cloister_crds.kinds.enclave import Enclave, EnclavePhase
from cloister_crds.lifecycle import request as requests
from cloister_crds.lifecycle.kept_request import request_instead
from cloister_crds.lifecycle.state.conditions import condition, holds
from cloister_crds.lifecycle.state.observed import Observed
from cloister_operator.rollout.decision import Action, CreateEnclave, Decision, DeleteEnclave

if TYPE_CHECKING:
    from tests.support.builders.world import SimulatedCluster

__all__ = ["check"]


def check(world: SimulatedCluster, observed: Observed, decision: Decision) -> None:
    """Check a decision against the guarantees of the lifecycle."""
    status = decision.status
    before = observed.container.status
    if status.active_enclave != before.active_enclave and status.active_enclave:
        taking_over = world.enclaves[status.active_enclave]
        assert taking_over.status.phase is EnclavePhase.READY
        promoted_holds(world, before, taking_over)
    assert condition(status.conditions, "Ready") is not None
    both = holds(status.conditions, "Reconciling") and holds(status.conditions, "Stalled")
    assert not both, "reconciling and stalled"
    if holds(status.conditions, "Paused"):
        # What spec requests is not considered: the generation stays, and Ready as of then.
        assert status.observed_generation == before.observed_generation
        assert condition(status.conditions, "Ready") == condition(before.conditions, "Ready")
    else:
        considered_holds(world, observed, status)
    if status.phase is ContainerPhase.READY and before.phase is not ContainerPhase.READY:
        reached_holds(world, status)
    made_holds(world, observed, decision.actions)
    ended_holds(world, status, decision.actions)


def considered_holds(world: SimulatedCluster, observed: Observed, status: ContainerStatus) -> None:
    generation = observed.container.metadata.generation
    assert status.observed_generation == generation
    assert all(each.observed_generation == generation for each in status.conditions)
    if holds(status.conditions, "Ready"):
        ready_holds(world, status)


def ready_holds(world: SimulatedCluster, status: ContainerStatus) -> None:
    if world.container.spec.state is DesiredState.STOPPED:
        assert not any(not each.deleting for each in world.pods.values())
        return
    waits = world.reason_of(status) == "AwaitingPromotion"
    wanted = world.enclaves[status.candidate if waits else status.active_enclave]
    latest = status.latest_release
    followed = latest.tag if latest is not None and latest.followed else None
    asked = requests.record(world.container.spec, followed_tag=followed)
    assert requests.is_made_for(wanted.spec, request_instead(status.kept_request, asked))
    assert wanted.status.phase is EnclavePhase.READY
    reached_holds(world, status)


def promoted_holds(world: SimulatedCluster, before: ContainerStatus, taking_over: Enclave) -> None:
    """Check that where updates are staged another request takes over only when promoted."""
    spec = world.container.spec
    default = before.staging
    if default is None:
        default = world.deployment is not None and world.deployment.spec.default_staging
    staging = default if spec.staging is None else spec.staging
    served = world.enclaves.get(before.active_enclave)
    if served is None:
        return
    if spec.relaunch_staging is not None and served.spec.request.relaunch != spec.relaunch:
        staging = spec.relaunch_staging
    if not staging:
        return
    if not requests.same(served.spec.request, taking_over.spec.request):
        assert spec.promote == taking_over.spec.revision


def reached_holds(world: SimulatedCluster, status: ContainerStatus) -> None:
    active = world.enclaves[status.active_enclave]
    assert active.status.phase is EnclavePhase.READY
    assert world.service is not None
    assert world.service.selects == status.active_enclave
    assert active.status.address in world.service.addresses


def made_holds(world: SimulatedCluster, observed: Observed, actions: tuple[Action, ...]) -> None:
    """Check that no attempt is created without need: one of a request is starting or serves."""
    for made in (each for each in actions if isinstance(each, CreateEnclave)):
        if made.name in world.enclaves:
            assert made.name in world.incomplete
            continue
        assert world.container.spec.state is DesiredState.RUNNING
        for other in world.enclaves.values():
            over = other.status.phase in {EnclavePhase.FAILED, EnclavePhase.ENDED}
            leaving = other.metadata.deletion_timestamp is not None
            moves = other.metadata.name in observed.cordoned
            moves = moves or other.status.demoted_at is not None
            if not over and not leaving and not moves:
                assert not requests.same(other.spec.request, made.spec.request)
        assert all(each in world.claims for each in made.spec.hostnames)


def ended_holds(
    world: SimulatedCluster, status: ContainerStatus, actions: tuple[Action, ...]
) -> None:
    """Check that what serves is deleted only on a stop, a deletion or when the next is reached.

    The successor may be another Container that replaces this one.
    """
    ending = {each.name for each in actions if isinstance(each, DeleteEnclave)}
    deleting = world.container.metadata.deletion_timestamp is not None
    if deleting or world.container.spec.state is DesiredState.STOPPED:
        return
    if world.successor is not None and world.reason_of(status) == "Replaced":
        return
    candidate = world.enclaves.get(status.candidate)
    if candidate is not None and candidate.spec.stop_first and not status.active_enclave:
        assert status.candidate in world.pods, "nobody waits for the GPUs yet"
        return
    assert status.active_enclave not in ending
    before = world.container.status.active_enclave
    old = world.enclaves.get(before)
    if old is not None and before in ending and old.status.phase is EnclavePhase.READY:
        successor = world.enclaves[status.active_enclave]
        assert world.service is not None
        assert successor.status.address in world.service.addresses
