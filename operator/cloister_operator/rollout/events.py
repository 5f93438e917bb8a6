"""The Events of an object, for people: decided from two statuses, before and after a write. Pure.

The normal life of a Container is Deploying (a new Enclave), Serving, Updating, AwaitingPromotion,
Drained and Stopped; that of an Enclave is Healthy, Serving and Draining. Everything else is what is
wrong, at the Container.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from cloister_crds.kinds.meta import Condition
from cloister_crds.lifecycle.state.conditions import condition, holds
from cloister_crds.lifecycle.state.reason import ReasonKind
from cloister_crds.lifecycle.state.reasons import REASONS

__all__ = ["StatusEvent", "enclave_event", "status_event"]

_CONDITIONS = TypeAdapter(tuple[Condition, ...])

Part = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """An Event to record."""

    reason: str
    """Reason from the reasons table."""
    message: str
    """Sentence for people."""
    warning: bool
    """Whether something is wrong."""


def status_event(before: Part, after: Part) -> StatusEvent | None:
    """Return the Event that a written status calls for.

    Parameters
    ----------
    before
        The status before the write, of any kind but Enclave.
    after
        The status after it.

    Returns
    -------
    StatusEvent | None
        The new reason of Ready, when it differs from the one before and the table gives it an
        Event; where the old release serves on after a failed update, UpdateFailed with the cause;
        else Drained, when that is new. None = no Event.
    """
    conditions = _CONDITIONS.validate_python(after.get("conditions") or ())
    old, new = _reason(_CONDITIONS.validate_python(before.get("conditions") or ())), None
    ready = condition(conditions, "Ready")
    if ready is not None and (word := _reason(conditions)) != old:
        new = REASONS.get(word)
    # An attempt may go back to Deploying each time that a pull is tried again: one Event for each.
    if new is not None and new.word == "Deploying" and _same(before, after, "candidate"):
        new = None
    if ready is None or new is None or (new.kind is ReasonKind.STATE and not new.event):
        return _drained(before, after)
    return StatusEvent(new.word, ready.message, warning=new.kind is not ReasonKind.STATE)


def enclave_event(spec: Part, before: Part, after: Part) -> StatusEvent | None:
    """Return the Event of an Enclave that a written status calls for; None = there is none.

    What is wrong with it is reported by its Container.
    """
    if after.get("serving") and not before.get("serving"):
        names = spec.get("hostnames") or ("",)
        return StatusEvent("Serving", f"Tag {spec['tag']} serves at {names[0]}.", warning=False)
    if before.get("serving") and not after.get("serving") and after.get("phase") == "Ready":
        message = "Requests go to the next enclave; this one is deleted once it has drained."
        return StatusEvent("Draining", message, warning=False)
    if after.get("readyAt") and not before.get("readyAt"):
        message = "Every container has started and is healthy."
        return StatusEvent("Healthy", message, warning=False)
    return None


def _drained(before: Part, after: Part) -> StatusEvent | None:
    """Return that an Enclave that served has drained: it is in the history once it is to go."""
    known = {each["enclave"] for each in before.get("history") or ()}
    added = (each for each in after.get("history") or () if each["enclave"] not in known)
    drained = next((each for each in added if each["outcome"] == "Served"), None)
    if drained is None or not after.get("activeEnclave"):
        return None
    message = f"Enclave {drained['enclave']} with tag {drained['tag']} has drained and is deleted."
    return StatusEvent("Drained", message, warning=False)


def _same(before: Part, after: Part, field: str) -> bool:
    return (before.get(field) or "") == (after.get(field) or "")


def _reason(conditions: Iterable[Condition]) -> str:
    """Return the reason that sums up the conditions; empty = there is none yet."""
    conditions = tuple(conditions)
    stalled = condition(conditions, "Stalled")
    if holds(conditions, "Stalled") and stalled is not None and stalled.reason == "UpdateFailed":
        return stalled.reason
    ready = condition(conditions, "Ready")
    return ready.reason if ready is not None else ""
