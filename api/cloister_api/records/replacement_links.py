"""Which container replaces which, by the identifiers of the API (spec 21.19). Pure.

A list has one container of a name: the one that replaces. The one that is replaced still serves,
and is listed again when its successor is deleted.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from cloister_api.cache import CachedContainer
from cloister_crds.lifecycle.replacement import successors

__all__ = ["NO_LINKS", "ReplacementLinks", "not_replaced", "replacement_links"]


@dataclass(frozen=True, slots=True)
class ReplacementLinks:
    """How one container is connected with others."""

    replaces: str | None = None
    """Identifier of the container that it replaces; None = none, or that is gone."""
    replaced_by: str | None = None
    """Identifier of the container that replaces it; None = none does."""


NO_LINKS = ReplacementLinks()
"""Neither of the two."""


def replacement_links(containers: Collection[CachedContainer]) -> Mapping[str, ReplacementLinks]:
    """Return the links of those that have any, by uid.

    Parameters
    ----------
    containers
        All Containers of a namespace.
    """
    # Usually none replaces another: clients poll lists, and this is on their way.
    if all(each.container.spec.replaces is None for each in containers):
        return {}
    by_uid = {each.container.metadata.uid: each for each in containers}
    links: dict[str, ReplacementLinks] = {}
    for old, new in successors(each.container for each in containers).items():
        uid = new.metadata.uid
        links[old] = replace(links.get(old, NO_LINKS), replaced_by=by_uid[uid].id)
        links[uid] = replace(links.get(uid, NO_LINKS), replaces=by_uid[old].id)
    return links


def not_replaced(
    containers: Collection[CachedContainer], links: Mapping[str, ReplacementLinks]
) -> list[CachedContainer]:
    """Return the containers that no other one replaces, in the same order."""
    if not links:
        return list(containers)
    return [
        each
        for each in containers
        if links.get(each.container.metadata.uid, NO_LINKS).replaced_by is None
    ]
