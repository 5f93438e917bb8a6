"""Bringing back what served, while another request is wanted and on its way or has failed.

The wanted request has its own rules; this looks after the one that served before it and lost its
Pod, so that a failed or slow update never costs the release that worked.
"""

from dataclasses import dataclass
from datetime import datetime

from cloister_crds.lifecycle.rollout_state import Line, Scene, names
from cloister_crds.lifecycle.state.decision import Action
from cloister_operator.rollout.new_attempt import repetition
from cloister_operator.rollout.rules import is_lost

__all__ = ["Restoration", "restore"]


@dataclass(frozen=True, slots=True)
class Restoration:
    """What is done for the request that served."""

    active: str | None = None
    """Name of the Enclave that serves from now on; None = as before."""
    route: str = ""
    """Name of the Enclave that the Service is to select; empty = leave it."""
    keep: frozenset[str] = frozenset()
    """Names of Enclaves that stay."""
    actions: tuple[Action, ...] = ()
    """What is made."""
    retry_at: datetime | None = None
    """When to look again, in UTC; None = when something changes."""


def restore(scene: Scene) -> Restoration:
    """Look after the request that serves or served, where it is not the wanted one.

    Parameters
    ----------
    scene
        What was observed.
    """
    line = scene.served_line
    if line is None:
        return Restoration()
    if scene.serving is not None:
        name = scene.serving.metadata.name
        return Restoration(keep=names(scene.serving), route="" if scene.is_routed else name)
    keep = names(scene.active, line.newest)
    if line.ready is not None:
        name = line.ready.metadata.name
        if scene.shows(line.ready):
            return Restoration(active=name, keep=names(line.ready))
        return Restoration(route=name, keep=keep)
    return _repeat(scene, line, keep)


def _repeat(scene: Scene, line: Line, keep: frozenset[str]) -> Restoration:
    if not is_lost(scene, line):
        return Restoration(keep=keep)
    retry_at = line.retry_at(scene.now)
    if retry_at > scene.now:
        return Restoration(keep=keep, retry_at=retry_at)
    made = repetition(scene, line)
    return Restoration(keep=keep | {made.name}, actions=(made,))
