"""Which containers a page of the list shows: chosen, the most urgent first, fifty at a time."""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cloister_api.cache import CachedContainer
from cloister_api.dashboard.views.rows import URGENCY, tone_of
from cloister_api.records.container import shown_state
from cloister_crds.kinds.container import ContainerPhase

__all__ = ["PAGE", "Choice", "ContainerListing", "listing_of"]

PAGE = 50
"""Containers of a page."""
ORDER = {phase: URGENCY.index(tone_of(phase)) for phase in ContainerPhase}
"""Place of each phase in the list."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What somebody looks for."""

    text: str = ""
    """Part of a name, a repository or a tag, in any case; empty = every one."""
    status: str = ""
    """Status word; empty = every one."""
    number: int = 1
    """Page, from 1."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Choice":
        """Return what a query asks for; a page that cannot be is the first."""
        number = query.get("page", "1")
        valid = number.isascii() and number.isdecimal() and 0 < len(number) < len("1000000")
        return cls(
            query.get("search", "").strip(),
            query.get("status", "").strip(),
            max(1, int(number)) if valid else 1,
        )


@dataclass(frozen=True, slots=True)
class ContainerListing:
    """A page of the list."""

    held: tuple[CachedContainer, ...]
    """Its containers."""
    counts: tuple[tuple[ContainerPhase, int], ...]
    """How many of all there are in each phase, the most urgent first."""
    total: int
    """How many there are."""
    found: int
    """How many were chosen."""
    number: int
    """Page, from 1."""
    pages: int
    """How many pages there are, at least 1."""


def listing_of(containers: Sequence[CachedContainer], choice: Choice) -> ContainerListing:
    """Return a page of the list; one behind the last is the last.

    Parameters
    ----------
    containers
        Containers of the organization that no other one is replacing.
    choice
        What somebody looks for.
    """
    placed = [(shown_state(each.container).phase, each) for each in containers]
    counts = Counter(phase for phase, _ in placed)
    text = choice.text.lower()
    chosen = [
        (ORDER[phase], each.container.display_name, each.container.metadata.uid, each)
        for phase, each in placed
        if (not choice.status or phase == choice.status) and (not text or has_text(each, text))
    ]
    pages = max(1, -(-len(chosen) // PAGE))
    number = min(choice.number, pages)
    # No uid is there twice, so that two containers are never compared.
    until = heapq.nsmallest(number * PAGE, chosen)
    return ContainerListing(
        tuple(entry[3] for entry in until[(number - 1) * PAGE :]),
        tuple(sorted(counts.items(), key=lambda item: (ORDER[item[0]], item[0]))),
        len(containers),
        len(chosen),
        number,
        pages,
    )


def has_text(held: CachedContainer, text: str) -> bool:
    """Return whether a container has a text, in lower case, in its name, repository or tag."""
    container = held.container
    names = (container.display_name, container.spec.repo, container.spec.tag)
    return any(text in name.lower() for name in names)
