"""The type of a reason: a word, its kind, its meaning and its remedy. The table is in `reasons`."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Reason", "ReasonKind", "final", "open_", "state", "transient"]


class ReasonKind(StrEnum):
    """What follows from a reason."""

    STATE = "state"
    """Nothing is wrong: it is a state."""
    TRANSIENT = "transient"
    """It may pass by itself: it is retried with backoff."""
    TERMINAL = "terminal"
    """Somebody has to change something."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A word and what it means."""

    word: str
    """CamelCase, stable."""
    kind: ReasonKind
    """What follows from it."""
    meaning: str
    """What it means."""
    remedy: str = ""
    """What to do, as an imperative sentence; empty where there is nothing to do."""
    final: bool = False
    """Whether only a new request helps: it is not retried before that."""
    recheck: bool = False
    """Whether it is checked again every minute, because others can free what is missing and no
    watch reports it."""
    event: bool = False
    """Whether it has an Event although nothing is wrong; what is wrong always has one."""


def state(word: str, meaning: str, remedy: str = "", *, event: bool = False) -> Reason:
    """Build the reason of a state in which nothing is wrong."""
    return Reason(word, ReasonKind.STATE, meaning, remedy, event=event)


def transient(word: str, meaning: str, remedy: str) -> Reason:
    """Build a reason that may pass by itself."""
    return Reason(word, ReasonKind.TRANSIENT, meaning, remedy)


def final(word: str, meaning: str, remedy: str) -> Reason:
    """Build a reason that only a new request fixes."""
    return Reason(word, ReasonKind.TERMINAL, meaning, remedy, final=True)


def open_(word: str, meaning: str, remedy: str, *, recheck: bool = False) -> Reason:
    """Build a reason that ends as soon as somebody changes what is missing."""
    return Reason(word, ReasonKind.TERMINAL, meaning, remedy, recheck=recheck)
