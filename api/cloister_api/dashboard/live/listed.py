"""The lists of containers that people look at, kept current by the informer."""

from cloister_api.cache import CachedContainer, ClusterCache
from cloister_api.dashboard.views.listing import OrderedContainers

__all__ = ["ListedContainers"]

MOST_KEPT = 50_000
"""Most containers of all lists together; beyond that they are made again when somebody looks."""


class ListedContainers:
    """The list of each organization, made when somebody looks at it first.

    Parameters
    ----------
    cache
        Informers, of which that of Containers is listened to.
    """

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._lists: dict[str, OrderedContainers] = {}
        cache.containers.listen(self._changed)

    def of(self, namespace: str) -> OrderedContainers:
        """Return the list of the organization of a namespace."""
        found = self._lists.get(namespace)
        if found is None:
            if sum(map(len, self._lists.values())) >= MOST_KEPT:
                self._lists.clear()
            found = self._lists[namespace] = OrderedContainers(self._cache.containers_of(namespace))
        return found

    def _changed(self, held: CachedContainer | None) -> None:
        """Take what the informer saw; None = any container may have changed."""
        if held is None:
            self._lists.clear()
            return
        meta = held.container.metadata
        kept = self._lists.get(meta.namespace or "")
        if kept is None:
            return
        now = self._cache.containers.by_uid(meta.uid)
        if now is None:
            kept.drop(held)
        else:
            kept.put(now.value)
