"""What the operator knows of the cluster: projections of all watched objects, with indexes.

Written by `handlers` (events), `relist` (what vanished) and `writes` (answers to our own writes);
read by the passes. It never asks the server itself. Resource versions are compared as integers
(Kubernetes API Concepts, "Resource versions").
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from cachetools import LRUCache

from cloister_clients.kube.kinds import KindRef
from cloister_crds.lifecycle.admission.limits import Place
from cloister_operator.cache.projections import WATCHED_KINDS, Body, WatchedKind, project

__all__ = ["CachedObject", "Store", "StoreChange"]

_TOMBSTONES = 20_000
"""How many removals are remembered, so that no late event brings an object back."""


@dataclass(frozen=True, slots=True)
class CachedObject:
    """One object."""

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
    """Names and values of the indexes that it stands in."""
    data: bytes
    """The projection as JSON: a tenth of the memory of Python objects."""
    place: Place | None = None
    """Its place in the order of its kind (`watched`); None = it has none."""

    def decode(self) -> dict[str, Any]:
        """Answer the projection."""
        body: dict[str, Any] = msgspec.json.decode(self.data)
        return body


@dataclass(frozen=True, slots=True)
class StoreChange:
    """An object came, changed or went."""

    ref: KindRef
    """Its kind."""
    namespace: str
    """Its namespace; empty for kinds without."""
    name: str
    """Its name."""
    before: CachedObject | None
    """What was known; None = nothing."""
    after: CachedObject | None
    """What is known now; None = it is gone."""


class Store:
    """All watched objects by kind, namespace and name."""

    def __init__(self, watched: tuple[WatchedKind, ...] = WATCHED_KINDS) -> None:
        self._watched = {each.ref: each for each in watched}
        self._kinds = frozenset(self._watched)
        self._objects: dict[KindRef, dict[str, dict[str, CachedObject]]] = {
            each.ref: {} for each in watched
        }
        self._indexed: dict[tuple[KindRef, str, str], dict[tuple[str, str], CachedObject]] = {}
        self._gone: LRUCache[tuple[KindRef, str, str], int] = LRUCache(_TOMBSTONES)
        self._listeners: list[Callable[[StoreChange], None]] = []

    @property
    def kinds(self) -> frozenset[KindRef]:
        """The kinds that are kept."""
        return self._kinds

    def subscribe(self, listener: Callable[[StoreChange], None]) -> None:
        """Call a function after each change, in the thread of the event loop."""
        self._listeners.append(listener)

    def put(self, ref: KindRef, body: Body) -> bool:
        """Take in an object as the server sent it.

        Parameters
        ----------
        ref
            Its kind; must be watched.
        body
            The object.

        Returns
        -------
        bool
            False when something as new is known already: an old event changes nothing.
        """
        metadata = body["metadata"]
        namespace, name = metadata.get("namespace") or "", metadata["name"]
        version = int(metadata["resourceVersion"])
        before = self.get(ref, namespace, name)
        known = before.version if before else self._gone.get((ref, namespace, name), 0)
        if version <= known:
            return False
        watched = self._watched[ref]
        after = CachedObject(
            ref=ref,
            namespace=namespace,
            name=name,
            uid=metadata["uid"],
            version=version,
            index_values=tuple(
                (index, value) for index, of in watched.indexes if (value := of(body))
            ),
            data=msgspec.json.encode(project(watched, body)),
            place=watched.place(body) if watched.place else None,
        )
        self._forget(before)
        self._objects[ref].setdefault(namespace, {})[name] = after
        for index, value in after.index_values:
            self._indexed.setdefault((ref, index, value), {})[namespace, name] = after
        self._tell(StoreChange(ref, namespace, name, before, after))
        return True

    def remove(self, ref: KindRef, namespace: str, name: str, version: int) -> bool:
        """Take out an object that is gone.

        Parameters
        ----------
        ref
            Its kind.
        namespace
            Its namespace; empty for kinds without.
        name
            Its name.
        version
            State that shows it gone: something newer is left alone.

        Returns
        -------
        bool
            Whether anything was taken out.
        """
        before = self.get(ref, namespace, name)
        if before is not None and before.version > version:
            return False
        place = (ref, namespace, name)
        self._gone[place] = max(version, self._gone.get(place, 0))
        if before is None:
            return False
        self._forget(before)
        names = self._objects[ref][namespace]
        del names[name]
        if not names:
            del self._objects[ref][namespace]
        self._tell(StoreChange(ref, namespace, name, before, None))
        return True

    def get(self, ref: KindRef, namespace: str, name: str) -> CachedObject | None:
        """Answer an object; None = it is not known."""
        return self._objects[ref].get(namespace, {}).get(name)

    def entries(self, ref: KindRef, namespace: str | None = None) -> Iterator[CachedObject]:
        """Go through the objects of a kind, in one namespace or (None) in all."""
        if namespace is not None:
            yield from tuple(self._objects[ref].get(namespace, {}).values())
            return
        for names in tuple(self._objects[ref].values()):
            yield from tuple(names.values())

    def by_index(self, ref: KindRef, index: str, value: str) -> tuple[CachedObject, ...]:
        """Answer the objects of a kind that stand under a value of an index (`watched`)."""
        return tuple(self._indexed.get((ref, index, value), {}).values())

    def count(self, ref: KindRef) -> int:
        """Answer how many objects of a kind there are."""
        return sum(len(names) for names in self._objects[ref].values())

    def _forget(self, entry: CachedObject | None) -> None:
        """Take an entry out of the indexes."""
        if entry is None:
            return
        for index, value in entry.index_values:
            under = self._indexed.get((entry.ref, index, value), {})
            under.pop((entry.namespace, entry.name), None)
            if not under:
                self._indexed.pop((entry.ref, index, value), None)

    def _tell(self, change: StoreChange) -> None:
        """Call who listens."""
        for listener in self._listeners:
            listener(change)
