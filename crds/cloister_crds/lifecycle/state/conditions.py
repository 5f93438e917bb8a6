"""Conditions as Kubernetes wants them: one of each type, times that move only with the status.

Sources: Kubernetes API conventions, "Typical status properties"; kstatus, "Conditions"
(Reconciling and Stalled are there only while true).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cloister_crds.kinds.meta import Condition, ConditionStatus

__all__ = ["ConditionUpdate", "condition", "holds", "merge"]

MESSAGE_LIMIT = 32_768
"""Longest message that the schema takes, in characters."""


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """A condition as observed now, without a transition time."""

    type: str
    """Name of the condition."""
    status: bool
    """Whether it holds."""
    reason: str
    """Reason from the reasons table."""
    message: str = ""
    """Sentence for people."""


def merge(
    before: Iterable[Condition],
    updates: Iterable[ConditionUpdate],
    *,
    generation: int,
    now: datetime,
) -> tuple[Condition, ...]:
    """Return the next conditions.

    Parameters
    ----------
    before
        Present conditions. One without an update is removed.
    updates
        The observed conditions, in the order in which they are written.
    generation
        metadata.generation that was observed.
    now
        The present; it is written only where a status changes.

    Returns
    -------
    tuple[Condition, ...]
        The next conditions, equal to the present ones when nothing changed.
    """
    known = {each.type: each for each in before}
    merged = []
    for update in updates:
        status = ConditionStatus.TRUE if update.status else ConditionStatus.FALSE
        old = known.get(update.type)
        since = old.last_transition_time if old is not None and old.status is status else now
        merged.append(
            Condition(
                type=update.type,
                status=status,
                observed_generation=max(generation, 0),
                last_transition_time=since,
                reason=update.reason,
                message=update.message[:MESSAGE_LIMIT],
            )
        )
    return tuple(merged)


def condition(conditions: Iterable[Condition], name: str) -> Condition | None:
    """Return the condition of a type; None when that type is absent."""
    return next((each for each in conditions if each.type == name), None)


def holds(conditions: Iterable[Condition], name: str) -> bool:
    """Return whether a condition exists and is true."""
    found = condition(conditions, name)
    return found is not None and found.status is ConditionStatus.TRUE
