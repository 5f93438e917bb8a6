"""The Events of an object, for people: decided from its conditions. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from cloister_crds.kinds.meta import Condition
from cloister_crds.lifecycle.state.conditions import condition, holds
from cloister_crds.lifecycle.state.reason import ReasonKind
from cloister_crds.lifecycle.state.reasons import REASONS

__all__ = ["StatusEvent", "status_event"]


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """An Event to record."""

    reason: str
    """Reason from the reasons table."""
    message: str
    """Sentence for people; it is in the object's conditions too."""
    warning: bool
    """Whether something is wrong."""


def status_event(before: Iterable[Condition], after: Iterable[Condition]) -> StatusEvent | None:
    """Return the Event that a written status calls for.

    Returns
    -------
    StatusEvent | None
        The new reason of Ready, when it differs from the one before and the table gives it an
        Event; where the old release serves on after a failed update, UpdateFailed with the cause.
        None = no Event. A successful start is in the conditions only: it costs no further write.
    """
    before, after = tuple(before), tuple(after)
    old, new = _reason(before), _reason(after)
    ready = condition(after, "Ready")
    if ready is None or old == new or new not in REASONS:
        return None
    reason = REASONS[new]
    if new == "Serving" and not holds(before, "Available"):
        return None
    if reason.kind is ReasonKind.STATE and not reason.event:
        return None
    return StatusEvent(new, ready.message, warning=reason.kind is not ReasonKind.STATE)


def _reason(conditions: tuple[Condition, ...]) -> str:
    """Return the reason that sums up the conditions; empty = there is none yet."""
    stalled = condition(conditions, "Stalled")
    if holds(conditions, "Stalled") and stalled is not None and stalled.reason == "UpdateFailed":
        return stalled.reason
    ready = condition(conditions, "Ready")
    return ready.reason if ready is not None else ""
