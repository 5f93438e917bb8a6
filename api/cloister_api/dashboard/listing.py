"""Which containers a page of the list shows: selected, the most urgent first, fifty a page."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Self

from cloister_api.cache import CachedContainer
from cloister_api.dashboard.rows import URGENCY, tone_of
from cloister_api.records.container import ReplacementLinks, replacement_links, shown_state
from cloister_crds.kinds.container import ContainerPhase

PAGE = 50
"""Containers of a page."""
ORDER = {phase: URGENCY.index(tone_of(phase)) for phase in ContainerPhase}
"""Place of each phase in the list."""
IN_ORDER = attrgetter("order")


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

    @property
    def uid(self) -> str:
        """Its uid."""
        return self.order[2]


@dataclass(frozen=True, slots=True)
class ContainerPage:
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


class OrderedContainers:
    """Containers of an organization in the order of the list, kept current one by one.

    A page of ten thousand containers costs what one of fifty does: nothing is sorted for a request,
    and all are looked at only for a search or while one is replaced. Objects in the cluster cache
    are replaced and never changed.
    """

    def __init__(self, containers: Iterable[CachedContainer] = ()) -> None:
        self._by_name = {
            each.container.metadata.name: ListedContainer.of(each) for each in containers
        }
        self._ordered = sorted(self._by_name.values(), key=IN_ORDER)
        self._counts = Counter(each.phase for each in self._ordered)
        self._replacing = {
            name
            for name, each in self._by_name.items()
            if each.held.container.spec.replaces is not None
        }

    def __len__(self) -> int:
        """Return how many containers there are, those included that another one replaces."""
        return len(self._ordered)

    def put(self, held: CachedContainer) -> None:
        """Take a container, in place of what was known of its name."""
        name = held.container.metadata.name
        self._remove(name)
        listed = self._by_name[name] = ListedContainer.of(held)
        insort(self._ordered, listed, key=IN_ORDER)
        self._counts[listed.phase] += 1
        if held.container.spec.replaces is not None:
            self._replacing.add(name)

    def drop(self, held: CachedContainer) -> None:
        """Forget a container, unless another one has its name by now."""
        meta = held.container.metadata
        known = self._by_name.get(meta.name)
        if known is not None and known.held.container.metadata.uid == meta.uid:
            self._remove(meta.name)

    def _remove(self, name: str) -> None:
        known = self._by_name.pop(name, None)
        if known is not None:
            del self._ordered[bisect_left(self._ordered, known.order, key=IN_ORDER)]
            self._counts[known.phase] -= 1
            self._replacing.discard(name)

    def links(self) -> Mapping[str, ReplacementLinks]:
        """Return which containers replace which, by uid."""
        involved: dict[str, CachedContainer] = {}
        for start in self._replacing:
            name: str | None = start
            while name is not None and name not in involved and name in self._by_name:
                held = involved[name] = self._by_name[name].held
                name = held.container.spec.replaces
        return replacement_links(involved.values())

    def page(self, choice: Choice, links: Mapping[str, ReplacementLinks]) -> ContainerPage:
        """Return a page of the containers that no other one replaces; beyond the last, the last.

        Parameters
        ----------
        links
            `links`.
        """
        counts, listed = self._counts.copy(), self._ordered
        replaced = {uid for uid, each in links.items() if each.replaced_by is not None}
        if replaced:
            counts.subtract(each.phase for each in listed if each.uid in replaced)
            listed = [each for each in listed if each.uid not in replaced]
        chosen, text = listed, choice.text.lower()
        if choice.status or text:
            chosen = [
                each
                for each in listed
                if (not choice.status or each.phase == choice.status) and text in each.text
            ]
        pages = max(1, -(-len(chosen) // PAGE))
        number = min(choice.number, pages)
        return ContainerPage(
            tuple(each.held for each in chosen[(number - 1) * PAGE : number * PAGE]),
            tuple(sorted(((+counts).items()), key=lambda item: (ORDER[item[0]], item[0]))),
            len(listed),
            len(chosen),
            number,
            pages,
        )
