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
    found = _older(container, by_name)
    passed = {container.metadata.name}
    link = found
    while link is not None:
        if link.metadata.name in passed:
            return None
        passed.add(link.metadata.name)
        link = _older(link, by_name)
    return found


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
    everything = tuple(containers)
    name, uid = container.metadata.name, container.metadata.uid
    candidates = [
        each
        for each in everything
        if each.spec.replaces == name
        and each.metadata.deletion_timestamp is None
        and (old := predecessor(each, everything)) is not None
        and old.metadata.uid == uid
    ]
    return min(
        candidates,
        key=lambda each: (not has_taken_over(each), _created(each), each.metadata.uid),
        default=None,
    )


def has_taken_over(container: Container) -> bool:
    """Return whether a Container serves or has served, so that nothing is left to replace."""
    status = container.status
    return bool(status.active_enclave) or any(each.outcome == "Served" for each in status.history)


def inherits_hostnames(container: Container, containers: Iterable[Container]) -> bool:
    """Return whether host names that ``spec.replaces`` holds are to be transferred to a Container.

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
