"""Replacement of another Container: `spec.replaces`.

The other one serves until this one is ready; its host names and its place under the limit are
transferred, then it stops and waits to be deleted. It must be older: a Container that gets the name
of one that was replaced long ago is not a predecessor.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from cloister_crds.kinds.container import Container

__all__ = [
    "has_taken_over",
    "inherits_hostnames",
    "predecessor",
    "successor",
    "successors",
]

_LAST = datetime.max.replace(tzinfo=UTC)
"""Creation time of what has none from the server yet."""


def predecessor(container: Container, containers: Iterable[Container]) -> Container | None:
    """Return the Container that another one replaces.

    Returns
    -------
    Container | None
        None when it names none, that one is gone or younger, or the two are part of a
        circle.
    """
    if container.spec.replaces is None:
        return None
    by_name = {each.metadata.name: each for each in containers}
    name = container.metadata.name
    if name in _in_circles(by_name | {name: container}):
        return None
    return _older(container, by_name)


def _older(container: Container, by_name: Mapping[str, Container]) -> Container | None:
    """Return the Container that ``spec.replaces`` names, unless it is younger.

    Both may be in one manifest file, and so created in the same second.
    """
    found = by_name.get(container.spec.replaces or "")
    return found if found is not None and _created(found) <= _created(container) else None


def _created(container: Container) -> datetime:
    return container.metadata.creation_timestamp or _LAST


def successor(container: Container, containers: Iterable[Container]) -> Container | None:
    """Return the Container that replaces another one.

    Returns
    -------
    Container | None
        Of several one that has taken over, else the oldest; None when there is none.
    """
    return successors(containers).get(container.metadata.uid)


def successors(containers: Iterable[Container]) -> dict[str, Container]:
    """Return the Container that replaces each one that is replaced, by the uid of the latter."""
    everything = tuple(containers)
    by_name = {each.metadata.name: each for each in everything}
    circular = _in_circles(by_name)
    candidates: dict[str, list[Container]] = {}
    for each in everything:
        old = _older(each, by_name)
        if old is None or each.metadata.deletion_timestamp is not None:
            continue
        if each.metadata.name not in circular:
            candidates.setdefault(old.metadata.uid, []).append(each)
    return {
        uid: min(
            found, key=lambda each: (not has_taken_over(each), _created(each), each.metadata.uid)
        )
        for uid, found in candidates.items()
    }


def _in_circles(by_name: Mapping[str, Container]) -> frozenset[str]:
    """Return the names of those whose chain of ``spec.replaces`` ends in a circle."""
    circular: dict[str, bool] = {}
    for start in by_name.values():
        chain: dict[str, None] = {}
        link: Container | None = start
        while link is not None and link.metadata.name not in circular:
            if link.metadata.name in chain:
                circular |= dict.fromkeys(chain, True)
                break
            chain[link.metadata.name] = None
            link = _older(link, by_name)
        else:
            ends = link is not None and circular[link.metadata.name]
            circular |= dict.fromkeys(chain, ends)
    return frozenset(name for name, is_so in circular.items() if is_so)


def has_taken_over(container: Container) -> bool:
    """Return whether a Container serves or has served, so that nothing is left to replace."""
    status = container.status
    return bool(status.active_enclave) or any(each.outcome == "Served" for each in status.history)


def inherits_hostnames(container: Container, containers: Iterable[Container]) -> bool:
    """Return whether host names that ``spec.replaces`` holds must be transferred to a Container.

    Returns
    -------
    bool
        True also when the other one is gone and its names were not released yet; False when a
        younger Container has its name.
    """
    everything = tuple(containers)
    if container.spec.replaces is None:
        return False
    gone = all(each.metadata.name != container.spec.replaces for each in everything)
    return gone or predecessor(container, everything) is not None
