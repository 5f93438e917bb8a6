"""Which containers a page of the list shows: chosen, the most urgent first, fifty at a time."""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Self

from cloister_api.cache import CachedContainer
from cloister_api.dashboard.views.rows import URGENCY, tone_of
from cloister_api.records.container import shown_state
from cloister_crds.kinds.container import ContainerPhase

__all__ = ["PAGE", "Choice", "ContainerListing", "ListedContainers", "listing_of"]

PAGE = 50
"""Containers of a page."""
ORDER = {phase: URGENCY.index(tone_of(phase)) for phase in ContainerPhase}
"""Place of each phase in the list."""
IN_ORDER = attrgetter("order")
MOST_KEPT = 50_000
"""Most containers that are kept; beyond that the cache starts from scratch."""


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
class ListedContainer:
    """A container, and what the list decides by."""

    held: CachedContainer
    """The container."""
    phase: ContainerPhase
    """Its status word."""
    order: tuple[int, str, str]
    """Sort key: the urgency, the name, and the uid, which no other one has."""
    text: str
    """Name, repository and tag in lower case, a line each."""

    @classmethod
    def of(cls, held: CachedContainer) -> Self:
        """Return what the list decides by."""
        container = held.container
        phase, name = shown_state(container).phase, container.display_name
        text = f"{name}\n{container.spec.repo}\n{container.spec.tag}".lower()
        return cls(held, phase, (ORDER[phase], name, container.metadata.uid), text)


class ListedContainers:
    """What the list decides by, kept for each container while it is the same object.

    Objects in the cluster cache are replaced and never changed.
    """

    def __init__(self) -> None:
        self._kept: dict[str, ListedContainer] = {}

    def of(self, containers: Iterable[CachedContainer]) -> list[ListedContainer]:
        """Return it for some containers."""
        return [self._one(each) for each in containers]

    def _one(self, held: CachedContainer) -> ListedContainer:
        uid = held.container.metadata.uid
        kept = self._kept.get(uid)
        if kept is None or kept.held is not held:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            kept = self._kept[uid] = ListedContainer.of(held)
        return kept


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


def listing_of(containers: Sequence[ListedContainer], choice: Choice) -> ContainerListing:
    """Return a page of the list; one behind the last is the last.

    Parameters
    ----------
    containers
        Containers of the organization that no other one is replacing.
    choice
        What somebody looks for.
    """
    counts = Counter(each.phase for each in containers)
    text = choice.text.lower()
    chosen = [
        each
        for each in containers
        if (not choice.status or each.phase == choice.status) and text in each.text
    ]
    pages = max(1, -(-len(chosen) // PAGE))
    number = min(choice.number, pages)
    until = heapq.nsmallest(number * PAGE, chosen, key=IN_ORDER)
    return ContainerListing(
        tuple(each.held for each in until[(number - 1) * PAGE :]),
        tuple(sorted(counts.items(), key=lambda item: (ORDER[item[0]], item[0]))),
        len(containers),
        len(chosen),
        number,
        pages,
    )
