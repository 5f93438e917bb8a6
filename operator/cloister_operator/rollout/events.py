"""What a person would look for among the Events of an object: decided from its conditions. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from cloister_crds.kinds.meta import Condition
from cloister_crds.lifecycle.state.conditions import condition, holds
from cloister_crds.lifecycle.state.reason import Kind
from cloister_crds.lifecycle.state.reasons import REASONS

__all__ = ["Occurrence", "occurrence"]


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that happened to an object."""

    reason: str
    """Word of the reasons table."""
    message: str
    """Sentence for people; it stands in the object's conditions too."""
    warning: bool
    """Whether something is wrong."""


def occurrence(before: Iterable[Condition], after: Iterable[Condition]) -> Occurrence | None:
    """Answer what is to be told after a status was written.

    Parameters
    ----------
    before
        The conditions as they were.
    after
        The conditions as they are.

    Returns
    -------
    Occurrence | None
        The new reason of Ready, when it is another one than before and the table says that an
        Event tells of it; where what served before goes on after a failed update, UpdateFailed with
        the cause. None = nothing. That something serves which did not before is told by conditions
        alone: a start that goes well costs no further write.
    """
    before, after = tuple(before), tuple(after)
    old, new = _reason(before), _reason(after)
    ready = condition(after, "Ready")
    if ready is None or old == new or new not in REASONS:
        return None
    reason = REASONS[new]
    if new == "Serving" and not holds(before, "Available"):
        return None
    if reason.kind is Kind.STATE and not reason.event:
        return None
    return Occurrence(new, ready.message, warning=reason.kind is not Kind.STATE)


def _reason(conditions: tuple[Condition, ...]) -> str:
    """Answer the word that tells how things stand; empty = nobody said so yet."""
    stalled = condition(conditions, "Stalled")
    if holds(conditions, "Stalled") and stalled is not None and stalled.reason == "UpdateFailed":
        return stalled.reason
    ready = condition(conditions, "Ready")
    return ready.reason if ready is not None else ""
