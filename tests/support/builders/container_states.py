"""Containers in each state that GitOps tools distinguish, with the status of real decisions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cloister_crds.kinds import Container
from cloister_crds.kinds.container import DesiredState
from cloister_crds.lifecycle.state.observed import Gateway, RouteState
from tests.support.builders.resources import NOW, SETTINGS
from tests.support.builders.world import SimulatedCluster

__all__ = ["STATES", "body_of"]


def body_of(container: Container) -> dict[str, Any]:
    """Return a Container as the server returns it."""
    return {"apiVersion": Container.INFO.api_version, "kind": "Container", **container.wire()}


def _fresh() -> SimulatedCluster:
    """Build one that was never reconciled."""
    return SimulatedCluster()


def _pending() -> SimulatedCluster:
    world = SimulatedCluster()
    world.source_is_up = False
    for _ in range(4):
        world.reconcile()
    return world


def _until(world: SimulatedCluster, phase: str) -> SimulatedCluster:
    """Advance it until it is in a phase."""
    for _ in range(20):
        if world.container.status.phase == phase:
            return world
        for name in list(world.pods):
            world.start(name)
        world.step()
    raise AssertionError(world.container.status)


def _serving() -> SimulatedCluster:
    world = SimulatedCluster()
    world.settle()
    return world


def _updating() -> SimulatedCluster:
    world = _serving()
    world.change_spec(tag="v1.1.0")
    for _ in range(6):
        world.step()
    return world


def _update_failed() -> SimulatedCluster:
    world = _updating()
    world.fail_candidate()
    return world


def _awaiting() -> SimulatedCluster:
    world = _serving()
    world.change_spec(staging=True, tag="v1.1.0")
    world.settle()
    return world


def _failed() -> SimulatedCluster:
    world = SimulatedCluster()
    world.bad_tags = {"v1.0.0"}
    world.settle()
    return world


def _lost() -> SimulatedCluster:
    world = _serving()
    world.lose_pod(world.container.status.active_enclave)
    world.step()
    return world


def _stopping() -> SimulatedCluster:
    world = _serving()
    world.change_spec(state=DesiredState.STOPPED)
    world.reconcile()
    return world


def _stopped() -> SimulatedCluster:
    world = _stopping()
    world.settle()
    return world


def _unseen() -> SimulatedCluster:
    """Make a change that the operator has not reconciled."""
    world = _serving()
    world.change_spec(tag="v1.1.0")
    return world


def _routed(state: RouteState) -> SimulatedCluster:
    world = SimulatedCluster(replace(SETTINGS, gateway=Gateway("public", "cloister-system")))
    world.settle()
    world.report_routes(state, "NoMatchingParent: there is no such listener.")
    world.settle()
    return world


def _deleting() -> SimulatedCluster:
    world = _serving()
    metadata = world.container.metadata.model_copy(update={"deletion_timestamp": NOW})
    world.container = world.container.model_copy(update={"metadata": metadata})
    return world


STATES: dict[str, tuple[Callable[[], SimulatedCluster], str, str]] = {
    "fresh": (_fresh, "InProgress", "Progressing"),
    "pending": (_pending, "InProgress", "Progressing"),
    "deploying": (lambda: _until(SimulatedCluster(), "deploying"), "InProgress", "Progressing"),
    "started": (lambda: _until(SimulatedCluster(), "started"), "InProgress", "Progressing"),
    "serving": (_serving, "Current", "Healthy"),
    "unseen change": (_unseen, "InProgress", "Progressing"),
    "updating": (_updating, "InProgress", "Progressing"),
    "update failed": (_update_failed, "Failed", "Degraded"),
    "awaiting promotion": (_awaiting, "Current", "Suspended"),
    "failed": (_failed, "Failed", "Degraded"),
    "lost": (_lost, "InProgress", "Progressing"),
    "stopping": (_stopping, "InProgress", "Progressing"),
    "stopped": (_stopped, "Current", "Healthy"),
    "route pending": (
        lambda: _routed(RouteState.PENDING),
        "InProgress",
        "Progressing",
    ),
    "route refused": (
        lambda: _routed(RouteState.REFUSED),
        "InProgress",
        "Progressing",
    ),
    "route accepted": (lambda: _routed(RouteState.ACCEPTED), "Current", "Healthy"),
    "deleting": (_deleting, "Terminating", ""),
}
"""How each state is reached, and its name for kstatus and for Argo CD (empty: it does not run the
check)."""
