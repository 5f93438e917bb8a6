"""The informer cache: projections of all watched objects, with indexes.

Written by `process.kopf_handlers` (watch events), `relist` (missed deletions) and `writer`
(responses to our own writes); read by reconcilers. It never queries the server itself. Resource
versions are compared as integers (Kubernetes API Concepts, "Resource versions").
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from cachetools import TTLCache

from cloister_clients.clock import monotonic
from cloister_clients.kube.kinds import KindRef
from cloister_crds.lifecycle.admission.limits import Place
from cloister_operator.cache.projections import WATCHED_KINDS, Body, WatchedKind, project

_TOMBSTONES = 20_000
"""Removals that are remembered at most, so that a late event does not bring an object back."""
_TOMBSTONE_SECONDS = 600.0
"""How long a removal is remembered: no watch is behind for longer."""


@dataclass(frozen=True, slots=True)
class CachedObject:
    """One version of one object."""

    ref: KindRef
    """Its kind."""
    namespace: str
    """Its namespace; empty for kinds without."""
    name: str
    """Its name."""
    uid: str
    """Its uid."""
    version: int
    """Its resourceVersion."""
    index_values: tuple[tuple[str, str], ...]
    """Names and values of the indexes that it is listed in."""
    data: bytes
    """The projection as JSON: a tenth of the memory of Python objects."""
    place: Place | None = None
    """Its place in the order of its kind (`WatchedKind.place`); None if it has none."""

    def decode(self) -> dict[str, Any]:
        """Return the projection."""
        body: dict[str, Any] = msgspec.json.decode(self.data)
        return body


@dataclass(frozen=True, slots=True)
class StoreChange:
    """An object was added, changed or removed."""

    ref: KindRef
    """Its kind."""
    namespace: str
    """Its namespace; empty for kinds without."""
    name: str
    """Its name."""
    before: CachedObject | None
    """The version that was cached; None if there was none."""
    after: CachedObject | None
    """The version that is cached now; None if it was removed."""


class Store:
    """All watched objects by kind, namespace and name."""

    def __init__(
        self,
        watched: tuple[WatchedKind, ...] = WATCHED_KINDS,
        *,
        timer: Callable[[], float] = monotonic,
    ) -> None:
        self._watched = {each.ref: each for each in watched}
        self._kinds = frozenset(self._watched)
        self._objects: dict[KindRef, dict[str, dict[str, CachedObject]]] = {
            each.ref: {} for each in watched
        }
        self._indexed: dict[tuple[KindRef, str, str], dict[tuple[str, str], CachedObject]] = {}
        self._tombstones: TTLCache[tuple[KindRef, str, str], int] = TTLCache(
            _TOMBSTONES, _TOMBSTONE_SECONDS, timer
        )
        self._subscribers: list[Callable[[StoreChange], None]] = []

    @property
    def kinds(self) -> frozenset[KindRef]:
        """The kinds that are cached."""
        return self._kinds

    def subscribe(self, subscriber: Callable[[StoreChange], None]) -> None:
        """Call a function after each change, in the thread of the event loop."""
        self._subscribers.append(subscriber)

    def put(self, ref: KindRef, body: Body) -> bool:
        """Add or update an object as the server sent it.

        Parameters
        ----------
        ref
            Its kind; must be watched.

        Returns
        -------
        bool
            False when the same or a newer version is cached: an old event changes nothing.
        """
        metadata = body["metadata"]
        namespace, name = metadata.get("namespace") or "", metadata["name"]
        version = int(metadata["resourceVersion"])
        before = self.get(ref, namespace, name)
        newest = before.version if before else self._tombstones.get((ref, namespace, name), 0)
        # A response to our own write and the watch event of it arrive in either order.
        if version <= newest:
            return False
        watched = self._watched[ref]
        after = CachedObject(
            ref=ref,
            namespace=namespace,
            name=name,
            uid=metadata["uid"],
            version=version,
            index_values=watched.index_values(body),
            data=msgspec.json.encode(project(watched, body)),
            place=watched.place(body) if watched.place else None,
        )
        self._unindex(before)
        self._objects[ref].setdefault(namespace, {})[name] = after
        for index, value in after.index_values:
            self._indexed.setdefault((ref, index, value), {})[namespace, name] = after
        self._notify(StoreChange(ref, namespace, name, before, after))
        return True

    def remove(self, ref: KindRef, namespace: str, name: str, version: int) -> bool:
        """Remove an object that was deleted.

        Parameters
        ----------
        namespace
            Its namespace; empty for kinds without.
        version
            Version of the state in which it is gone: a newer object is kept.
        """
        before = self.get(ref, namespace, name)
        if before is not None and before.version > version:
            return False
        place = (ref, namespace, name)
        self._tombstones[place] = max(version, self._tombstones.get(place, 0))
        if before is None:
            return False
        self._unindex(before)
        names = self._objects[ref][namespace]
        del names[name]
        if not names:
            del self._objects[ref][namespace]
        self._notify(StoreChange(ref, namespace, name, before, None))
        return True

    def get(self, ref: KindRef, namespace: str, name: str) -> CachedObject | None:
        """Return an object; None if it is not cached."""
        return self._objects[ref].get(namespace, {}).get(name)

    def entries(self, ref: KindRef, namespace: str | None = None) -> Iterator[CachedObject]:
        """Return the objects of a kind, in one namespace or (None) in all."""
        if namespace is not None:
            # A copy: a caller that awaits between two objects may meet a change.
            yield from tuple(self._objects[ref].get(namespace, {}).values())
            return
        for names in tuple(self._objects[ref].values()):
            yield from tuple(names.values())

    def by_index(self, ref: KindRef, index: str, value: str) -> tuple[CachedObject, ...]:
        """Return the objects of a kind with a value in an index (`WatchedKind.indexes`)."""
        return tuple(self._indexed.get((ref, index, value), {}).values())

    def count(self, ref: KindRef, namespace: str | None = None) -> int:
        """Return how many objects of a kind there are, in one namespace or (None) in all."""
        if namespace is not None:
            return len(self._objects[ref].get(namespace, {}))
        return sum(len(names) for names in self._objects[ref].values())

    def _unindex(self, entry: CachedObject | None) -> None:
        """Remove an object from the indexes."""
        if entry is None:
            return
        for index, value in entry.index_values:
            under = self._indexed.get((entry.ref, index, value), {})
            under.pop((entry.namespace, entry.name), None)
            if not under:
                self._indexed.pop((entry.ref, index, value), None)

    def _notify(self, change: StoreChange) -> None:
        """Call the subscribers."""
        for subscriber in self._subscribers:
            subscriber(change)
