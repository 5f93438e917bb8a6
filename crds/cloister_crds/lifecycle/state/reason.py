"""What a reason is: a word, what follows from it, and what helps. The table is in `reasons`."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Reason", "ReasonKind", "final", "open_", "state", "transient"]


class ReasonKind(StrEnum):
    """What follows from a reason."""

    STATE = "state"
    """Nothing is wrong: it says where things stand."""
    TRANSIENT = "transient"
    """It may pass by itself: tried again with growing waits."""
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
    """What is so."""
    remedy: str = ""
    """What to do, as an imperative sentence; empty where nothing is to be done."""
    final: bool = False
    """Whether only a new request helps: it is not asked or tried again before that."""
    recheck: bool = False
    """Whether it is looked at again every minute, because others can free what is missing and
    nothing tells of it."""
    event: bool = False
    """Whether an Event tells that it began although nothing is wrong; of what is wrong one does."""


def state(word: str, meaning: str, remedy: str = "", *, event: bool = False) -> Reason:
    """Make the reason of a state in which nothing is wrong."""
    return Reason(word, ReasonKind.STATE, meaning, remedy, event=event)


def transient(word: str, meaning: str, remedy: str) -> Reason:
    """Make a reason that may pass by itself."""
    return Reason(word, ReasonKind.TRANSIENT, meaning, remedy)


def final(word: str, meaning: str, remedy: str) -> Reason:
    """Make a reason that only a new request helps against."""
    return Reason(word, ReasonKind.TERMINAL, meaning, remedy, final=True)


def open_(word: str, meaning: str, remedy: str, *, recheck: bool = False) -> Reason:
    """Make a reason that ends as soon as somebody changes what is missing."""
    return Reason(word, ReasonKind.TERMINAL, meaning, remedy, recheck=recheck)
