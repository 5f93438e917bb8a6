"""Informer: a cache of one kind in memory, kept by list and watch, for reads without a request.

Used by the facade (the operator watches through its framework). The cache is only ever written by
what the server sends, never by what a caller believes to have written, so that an old event cannot
overwrite a newer write; a writer waits until the cache has reached its write instead
(`Reflector.reached`). Resource versions are compared as integers (Kubernetes API Concepts,
"Resource versions": comparable within one kind).
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cloister_clients.kube.client import KubeClient
from cloister_clients.kube.errors import Gone, KubeError
from cloister_clients.kube.kinds import KindRef, Object, WatchEvent, WatchEventType
from cloister_crds.backoff import Backoff

__all__ = ["ReflectedObject", "Reflector", "reduced"]

T = TypeVar("T")
Indexer = Callable[[T], Iterable[str]]
"""Returns the keys under which an index finds a value."""
Listener = Callable[[T | None], None]
"""Is told a value that came, changed or went; None means anything may have, after a new list."""

logger = logging.getLogger(__name__)

FAILURES_TO_LIST = 6
"""After so many failures of the watch the state is listed again: a server that was restored from a
backup knows nothing of the version that the cache has reached, and never says 410."""

_BACKOFF = Backoff(first=0.2, longest=30.0, jitter=(0.5, 1.0))
"""Delays between failed attempts to list or to watch."""


@dataclass(frozen=True, slots=True)
class ReflectedObject(Generic[T]):
    """One object of the cache."""

    namespace: str
    """Its namespace; empty for kinds without."""
    name: str
    """Its name."""
    uid: str
    """Its uid."""
    version: int
    """Its resourceVersion."""
    value: T
    """What the reading function made of it."""


@dataclass(slots=True)
class ReflectorCache(Generic[T]):
    """The objects and their indexes; one is filled while the earlier one is still read."""

    indexers: Mapping[str, Indexer[T]]
    by_uid: dict[str, ReflectedObject[T]] = field(default_factory=dict)
    by_namespace: dict[str, dict[str, ReflectedObject[T]]] = field(default_factory=dict)
    by_index: dict[tuple[str, str], dict[str, ReflectedObject[T]]] = field(default_factory=dict)
    """Objects by uid, by index and key."""

    def put(self, entry: ReflectedObject[T]) -> None:
        """Add or replace an object."""
        names = self.by_namespace.setdefault(entry.namespace, {})
        before = names.get(entry.name)
        if before is not None:
            self._forget(before.uid)
        names[entry.name] = entry
        self.by_uid[entry.uid] = entry
        for place in self._places(entry):
            self.by_index.setdefault(place, {})[entry.uid] = entry

    def _places(self, entry: ReflectedObject[T]) -> Iterable[tuple[str, str]]:
        return (
            (index, key) for index, keys in self.indexers.items() for key in set(keys(entry.value))
        )

    def _forget(self, uid: str) -> None:
        """Remove an object from the indexes."""
        entry = self.by_uid.pop(uid, None)
        for place in self._places(entry) if entry is not None else ():
            found = self.by_index[place]
            del found[uid]
            if not found:
                del self.by_index[place]

    def drop(self, namespace: str, name: str, uid: str) -> None:
        """Remove an object, but no later one of the same name."""
        self._forget(uid)
        names = self.by_namespace.get(namespace, {})
        held = names.get(name)
        if held is not None and held.uid == uid:
            del names[name]
            if not names:
                del self.by_namespace[namespace]


class Reflector(Generic[T]):
    """An informer; `run` it as a task, read its cache from anywhere in the same event loop."""

    def __init__(
        self,
        client: KubeClient,
        ref: KindRef,
        read: Callable[[Object], T],
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        page: int = 500,
        watch_seconds: int = 240,
        backoff: Backoff = _BACKOFF,
        indexers: Mapping[str, Indexer[T]] | None = None,
    ) -> None:
        """Prepare the informer.

        Parameters
        ----------
        client
            Client whose user may list and watch the kind.
        read
            Makes what is kept of an object; what it raises leaves the object out, with a warning.
        namespace
            Namespace to follow; None means all, or a kind without.
        label_selector
            Selector of labels; None means all objects.
        field_selector
            Selector of fields; None means all objects.
        backoff
            Delays after failures.
        indexers
            Indexes by name; their functions are pure. None if there are none.
        """
        self._client = client
        self._ref = ref
        self._read = read
        self._namespace = namespace
        self._labels = label_selector
        self._fields = field_selector
        self._page = page
        self._watch_seconds = watch_seconds
        self._backoff = backoff
        self._indexers = indexers or {}
        self._cache: ReflectorCache[T] = ReflectorCache(self._indexers)
        self._version = -1
        self._changed = asyncio.Event()
        self._failure: str | None = "not listed yet"
        self._listeners: list[Listener[T]] = []

    def listen(self, listener: Listener[T]) -> None:
        """Call a listener at every change of the cache from now on; it must not block or raise."""
        self._listeners.append(listener)

    @property
    def ready(self) -> bool:
        """Whether the whole list has been read at least once."""
        return self._version >= 0

    @property
    def failure(self) -> str | None:
        """Why the cache may lag at present; None if it follows."""
        return self._failure

    @property
    def version(self) -> int:
        """The state that the cache has reached; -1 if there is none yet."""
        return self._version

    def get(self, name: str, namespace: str | None = None) -> ReflectedObject[T] | None:
        """Return the object of that name; None if not in the cache."""
        return self._cache.by_namespace.get(namespace or "", {}).get(name)

    def by_uid(self, uid: str) -> ReflectedObject[T] | None:
        """Return the object with that uid; None if not in the cache."""
        return self._cache.by_uid.get(uid)

    def by_index(self, index: str, key: str) -> Collection[ReflectedObject[T]]:
        """Return the objects with a key of an index; the caller must not keep it over an await."""
        return self._cache.by_index.get((index, key), {}).values()

    @property
    def kind(self) -> str:
        """Kind of the objects, such as ``Container``."""
        return self._ref.kind

    @property
    def size(self) -> int:
        """How many objects the cache holds."""
        return len(self._cache.by_uid)

    def in_namespace(self, namespace: str) -> Mapping[str, ReflectedObject[T]]:
        """Return the objects of a namespace by name; the caller must not keep it over an await."""
        return self._cache.by_namespace.get(namespace, {})

    def all(self) -> Iterable[ReflectedObject[T]]:
        """Return all objects; the caller must not keep it over an await."""
        return self._cache.by_uid.values()

    async def reached(self, resource_version: str, *, within: float) -> bool:
        """Wait until the cache shows a state.

        Parameters
        ----------
        resource_version
            The state, from the server's response to a write of this kind.
        within
            Seconds to wait.

        Returns
        -------
        bool
            False when the time was over.
        """
        wanted = int(resource_version)
        return await self.until(lambda: self._version >= wanted, within=within)

    async def until(self, predicate: Callable[[], bool], *, within: float | None) -> bool:
        """Wait until a predicate about the cache holds.

        Parameters
        ----------
        predicate
            Called immediately and after every change.
        within
            Seconds to wait; None means forever.

        Returns
        -------
        bool
            False when the time was over.
        """
        try:
            async with asyncio.timeout(within):
                while not predicate():
                    await self._changed.wait()
        except TimeoutError:
            return predicate()
        return True

    async def run(self) -> None:
        """List, watch, and begin again after failures, until cancelled."""
        failures = 0
        while True:
            started = self._version
            try:
                await self._list()
                await self._watch_on()
            except Gone as error:
                logger.info("%s: %s; listing again", self._ref.plural, error)
                self._failure = str(error)
            except KubeError as error:
                self._failure = str(error)
                logger.warning("%s: %s", self._ref.plural, error)
            # Progress, however small, resets the backoff; a server that answers every
            # watch with 410 immediately must not be listed without pause.
            failures = 1 if self._version > started else failures + 1
            await asyncio.sleep(self._backoff.jittered(failures))

    async def _list(self) -> None:
        fresh: ReflectorCache[T] = ReflectorCache(self._indexers)
        version = ""
        async for page in self._client.list_pages(
            self._ref,
            self._namespace,
            label_selector=self._labels,
            field_selector=self._fields,
            limit=self._page,
        ):
            for item in page.items:
                self._keep(fresh, item)
            version = page.resource_version
        self._cache = fresh
        self._advance(int(version))
        self._failure = None
        self._tell(None)

    async def _watch_on(self) -> None:
        """Follow one watch after another; a broken one is taken up where it stopped.

        Raises
        ------
        Gone
            When a new list is needed.
        """
        failures = 0
        while True:
            try:
                async with aclosing(self._events()) as events:
                    async for event in events:
                        failures = 0
                        self._failure = None
                        self._take(event)
                # A server that ends every watch immediately must not be queried without pause.
                await asyncio.sleep(self._backoff.jittered(1))
            except Gone:
                raise
            except KubeError as error:
                failures += 1
                self._failure = str(error)
                logger.info("watch of %s: %s", self._ref.plural, error)
                if failures >= FAILURES_TO_LIST:
                    raise Gone(0, "", f"the watch failed {failures} times in a row") from error
                await asyncio.sleep(self._backoff.jittered(failures))

    def _events(self) -> AsyncGenerator[WatchEvent, None]:
        return self._client.watch(
            self._ref,
            self._namespace,
            resource_version=str(self._version),
            seconds=int(self._watch_seconds * random.uniform(0.75, 1.25)) or 1,
            label_selector=self._labels,
            field_selector=self._fields,
        )

    def _take(self, event: WatchEvent) -> None:
        meta = event.object["metadata"]
        # A bookmark has only a version.
        uid = meta.get("uid", "")
        before = self._cache.by_uid.get(uid)
        if event.type in {WatchEventType.ADDED, WatchEventType.MODIFIED}:
            self._keep(self._cache, event.object)
        elif event.type is WatchEventType.DELETED:
            self._cache.drop(meta.get("namespace", ""), meta["name"], meta["uid"])
        self._advance(int(meta["resourceVersion"]))
        changed = self._cache.by_uid.get(uid) or before
        if changed is not None:
            self._tell(changed.value)

    def _tell(self, value: T | None) -> None:
        for listener in self._listeners:
            listener(value)

    def _keep(self, cache: ReflectorCache[T], item: Object) -> None:
        meta = item["metadata"]
        namespace, name, uid = meta.get("namespace", ""), meta["name"], meta["uid"]
        try:
            value = self._read(reduced(item))
        except Exception:  # whatever one object is made of, the others must go on being read
            logger.exception("%s %s/%s cannot be read", self._ref.kind, namespace, name)
            cache.drop(namespace, name, uid)
            return
        cache.put(ReflectedObject(namespace, name, uid, int(meta["resourceVersion"]), value))

    def _advance(self, version: int) -> None:
        self._version = version
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def reduced(item: Object) -> Object:
    """Return the object with managedFields cut down to who set which fields, and when last."""
    meta = item.get("metadata", {})
    managed = meta.get("managedFields")
    if not managed:
        return item
    short = [
        {
            "manager": part.get("manager", ""),
            "subresource": part.get("subresource", ""),
            "time": part.get("time"),
            "fieldsV1": part.get("fieldsV1") or {},
        }
        for part in managed
    ]
    return {**item, "metadata": {**meta, "managedFields": short}}
