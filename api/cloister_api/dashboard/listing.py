"""Which containers a page of the list shows: selected, the most urgent first, fifty a page."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cloister_api.cache import CachedContainer
from cloister_api.dashboard.rows import Situation, situation_of
from cloister_api.records.container import ReplacementLinks, shown_state
from cloister_crds.kinds import Container

PAGE = 50
"""Containers of a page."""
ORDER = {situation: place for place, situation in enumerate(Situation)}


@dataclass(frozen=True, slots=True)
class Choice:
    """What somebody looks for."""

    text: str = ""
    """Part of a name, a repository or a tag, in any case; empty means every one."""
    status: str = ""
    """Situation, or status word of the API; empty means every one."""
    number: int = 1
    """Page, from 1."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Choice":
        """Return what a query requests; an invalid page is the first."""
        number = query.get("page", "1")
        valid = number.isascii() and number.isdecimal() and 0 < len(number) < len("1000000")
        return cls(
            query.get("search", "").strip(),
            query.get("status", "").strip(),
            max(1, int(number)) if valid else 1,
        )


@dataclass(frozen=True, slots=True)
class ContainerPage:
    """A page of the list."""

    held: tuple[CachedContainer, ...]
    """Its containers."""
    counts: tuple[tuple[Situation, int], ...]
    """How many of all there are in each situation, the most urgent first."""
    total: int
    """How many there are."""
    found: int
    """How many were chosen."""
    number: int
    """Page, from 1."""
    pages: int
    """How many pages there are, at least 1."""


def page_of(
    containers: Iterable[CachedContainer], links: Mapping[str, ReplacementLinks], choice: Choice
) -> ContainerPage:
    """Return a page of the containers that no other one replaces; beyond the last, the last.

    Parameters
    ----------
    links
        Which containers replace which, by uid.
    """
    listed = [
        (
            each,
            where.phase,
            situation_of(where.phase, where.update.status if where.update else None),
        )
        for each in containers
        if each.id not in links or links[each.id].replaced_by is None
        for where in (shown_state(each.container),)
    ]
    text = choice.text.lower()
    chosen = [
        (each, situation)
        for each, phase, situation in listed
        if (not choice.status or choice.status in {phase, situation})
        and (not text or _has(each.container, text))
    ]
    pages = max(1, -(-len(chosen) // PAGE))
    number = min(choice.number, pages)
    chosen.sort(key=lambda pair: (ORDER[pair[1]], pair[0].container.display_name, pair[0].id))
    counts = Counter(situation for _, _, situation in listed)
    return ContainerPage(
        tuple(each for each, _ in chosen[(number - 1) * PAGE : number * PAGE]),
        tuple(sorted(counts.items(), key=lambda item: ORDER[item[0]])),
        len(listed),
        len(chosen),
        number,
        pages,
    )


def _has(container: Container, text: str) -> bool:
    """Return whether the name, the repository or the tag contains a text in lower case."""
    spec = container.spec
    return any(text in part.lower() for part in (container.display_name, spec.repo, spec.tag))
