"""Containers in each state that GitOps tools have to tell apart, with the status of real passes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cloister_crds.kinds import Container
from cloister_crds.kinds.container import DesiredState
from cloister_crds.lifecycle.state.observed import Gateway, RouteState
from tests.support.builders.resources import NOW, SETTINGS
from tests.support.builders.world import World

__all__ = ["STATES", "body_of"]


def body_of(container: Container) -> dict[str, Any]:
    """Write a Container as the server answers it."""
    return {"apiVersion": Container.INFO.api_version, "kind": "Container", **container.wire()}


def _fresh() -> World:
    """Make one that nothing has looked at."""
    return World()


def _pending() -> World:
    world = World()
    world.source_is_up = False
    for _ in range(4):
        world.work()
    return world


def _until(world: World, phase: str) -> World:
    """Let it go on until it is in a phase."""
    for _ in range(20):
        if world.container.status.phase == phase:
            return world
        for name in list(world.pods):
            world.start(name)
        world.step()
    raise AssertionError(world.container.status)


def _serving() -> World:
    world = World()
    world.settle()
    return world


def _updating() -> World:
    world = _serving()
    world.ask(tag="v1.1.0")
    for _ in range(6):
        world.step()
    return world


def _update_failed() -> World:
    world = _updating()
    world.fail_candidate()
    return world


def _awaiting() -> World:
    world = _serving()
    world.ask(staging=True, tag="v1.1.0")
    world.settle()
    return world


def _failed() -> World:
    world = World()
    world.bad_tags = {"v1.0.0"}
    world.settle()
    return world


def _lost() -> World:
    world = _serving()
    world.lose(world.container.status.active_enclave)
    world.step()
    return world


def _stopping() -> World:
    world = _serving()
    world.ask(state=DesiredState.STOPPED)
    world.work()
    return world


def _stopped() -> World:
    world = _stopping()
    world.settle()
    return world


def _unseen() -> World:
    """Make a change that the operator has not looked at."""
    world = _serving()
    world.ask(tag="v1.1.0")
    return world


def _routed(state: RouteState) -> World:
    world = World(replace(SETTINGS, gateway=Gateway("public", "cloister-system")))
    world.settle()
    world.say(state, "NoMatchingParent: there is no such listener.")
    world.settle()
    return world


def _deleting() -> World:
    world = _serving()
    metadata = world.container.metadata.model_copy(update={"deletion_timestamp": NOW})
    world.container = world.container.model_copy(update={"metadata": metadata})
    return world


STATES: dict[str, tuple[Callable[[], World], str, str]] = {
    "fresh": (_fresh, "InProgress", "Progressing"),
    "pending": (_pending, "InProgress", "Progressing"),
    "deploying": (lambda: _until(World(), "deploying"), "InProgress", "Progressing"),
    "started": (lambda: _until(World(), "started"), "InProgress", "Progressing"),
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
"""What makes each state, what kstatus calls it, and what Argo CD calls it (empty: it does not ask
the check)."""
