"""Compares the informer cache with the server, by lists of metadata only.

kopf reports nothing for an object that was deleted while no watch was open (after a lost
connection, an expired version, a stop of the process). So each kind is compared whenever kopf has
listed it again, and at regular intervals. The same comparison determines when the cache has synced.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from cloister_clients.kube import KindRef, KubeClient, KubeError, ListPage
from cloister_operator.cache.projections import WATCHED_KINDS, Body, WatchedKind
from cloister_operator.cache.store import Store
from cloister_operator.telemetry.health import Liveness
from cloister_operator.telemetry.metrics import OperatorMetrics

logger = logging.getLogger(__name__)

_SETTLE = 1.0
"""Debounce of requested comparisons, in seconds: a new list requests one for each object."""
_POLL = 0.1
"""Seconds between two checks whether the store has everything at the start."""
_PATIENCE = 5.0
"""Seconds of such checks without a new object until the server is listed again."""
_RETRY = 2.0
"""Seconds until a failed comparison is retried."""


class Relister:
    """Compares kinds on request, and at regular intervals."""

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        metrics: OperatorMetrics,
        liveness: Liveness,
        *,
        every: float,
        watched: tuple[WatchedKind, ...] = WATCHED_KINDS,
    ) -> None:
        self._client = client
        self._store = store
        self._metrics = metrics
        self._liveness = liveness
        self._every = every
        self._watched = {each.ref: each for each in watched}
        self._requested = {ref: asyncio.Event() for ref in self._watched}
        self._synced = asyncio.Event()
        self._lagging: dict[KindRef, frozenset[str]] = {}

    @property
    def synced(self) -> bool:
        """Whether the store had everything that the server had at the start."""
        return self._synced.is_set()

    def request(self, ref: KindRef) -> None:
        """Request a comparison of a kind soon; before the first sync there is no need."""
        if self.synced:
            self._requested[ref].set()

    async def sync(self) -> None:
        """Wait until the store has every object that the server has, and no other.

        A reconcile with half of the cluster would decide wrongly, so none runs before. The store of
        a process that has waited for the Lease may have been filled long ago.
        """
        await asyncio.gather(*(self._sync(ref) for ref in self._watched))
        self._synced.set()

    async def run(self) -> None:
        """Compare each kind at intervals and on request, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for ref in self._watched:
                tasks.create_task(self._follow(ref), name=f"relist {ref.plural}")

    async def compare(self, ref: KindRef) -> int:
        """Remove from the store what the server no longer has; return how many objects.

        Raises
        ------
        KubeError
            When the server refuses or cannot be reached.
        """
        page = await self._list(ref)
        missed = self._remove_deleted(ref, page)
        self._check_watch(ref, page.items)
        self._liveness.heartbeat("comparison with the server", stale=3 * self._every + 60)
        return missed

    async def _list(self, ref: KindRef) -> ListPage:
        """List the objects of a kind with their versions, without spec and status."""
        selector = self._watched[ref].label_selector
        return await self._client.list(ref, label_selector=selector, metadata_only=True)

    def _remove_deleted(self, ref: KindRef, page: ListPage) -> int:
        """Remove from the store what a list no longer has; return how many objects."""
        version = int(page.resource_version)
        present = {
            (item["metadata"].get("namespace") or "", item["metadata"]["name"]): item["metadata"]
            for item in page.items
        }
        missed = 0
        for entry in self._store.entries(ref):
            found = present.get((entry.namespace, entry.name))
            if found is not None and found["uid"] == entry.uid:
                continue
            # The event of another object by that name, which may not have arrived, must not count
            # as older than the removal.
            removed = version if found is None else int(found["resourceVersion"]) - 1
            # One that was created after the list has a newer version, and the store keeps it.
            if self._store.remove(ref, entry.namespace, entry.name, removed):
                missed += 1
                logger.info(
                    "%s %s/%s was deleted, and no watch reported it",
                    ref.kind,
                    entry.namespace,
                    entry.name,
                )
        self._metrics.missed_deletions(ref.kind, missed)
        return missed

    def _check_watch(self, ref: KindRef, items: Iterable[Body]) -> None:
        """Report a watch as dead when the store lacks the same versions in two comparisons."""
        missing = frozenset(
            f"{item['metadata']['uid']} {item['metadata']['resourceVersion']}"
            for item in items
            if self._is_missing(ref, item)
        )
        still = missing & self._lagging.get(ref, frozenset())
        self._lagging[ref] = missing
        self._metrics.watch_behind(ref.kind, len(still))
        text = f"the watch of {ref.plural} is {len(still)} objects behind" if still else ""
        self._liveness.report_problem(f"watch {ref.plural}", text)

    def _is_missing(self, ref: KindRef, item: Body) -> bool:
        """Return whether the store lacks an object of the server, or has an older version."""
        metadata = item["metadata"]
        entry = self._store.get(ref, metadata.get("namespace") or "", metadata["name"])
        return entry is None or entry.version < int(metadata["resourceVersion"])

    async def _sync(self, ref: KindRef) -> None:
        """Wait until the store has every object of one kind."""
        while True:
            try:
                page = await self._list(ref)
            except KubeError as error:
                logger.warning("cannot list %s: %s", ref.plural, error)
                await asyncio.sleep(_RETRY / 4)
                continue
            self._remove_deleted(ref, page)
            if await self._arrives(ref, page.items):
                return

    async def _arrives(self, ref: KindRef, wanted: Iterable[Body]) -> bool:
        """Wait until the store has objects; False means one was perhaps deleted, and never arrives.

        The server is not listed meanwhile: a list of everything costs both sides too much for that.
        Objects are checked one after the other, in the order in which they arrive.
        """
        missing = list(wanted)[::-1]
        idle = 0
        while idle < round(_PATIENCE / _POLL):
            before = len(missing)
            while missing and not self._is_missing(ref, missing[-1]):
                missing.pop()
            if not missing:
                return True
            idle = idle + 1 if len(missing) == before else 0
            await asyncio.sleep(_POLL)
        return False

    async def _follow(self, ref: KindRef) -> None:
        """Compare one kind at intervals and on request."""
        requested = self._requested[ref]
        while True:
            await _wait(requested.wait, self._every)
            if requested.is_set():
                await asyncio.sleep(_SETTLE)
            requested.clear()
            try:
                await self.compare(ref)
            except KubeError as error:
                # Requested again, so that a watch that was interrupted is compared in any case.
                logger.warning("cannot compare %s: %s", ref.plural, error)
                requested.set()
                await asyncio.sleep(_RETRY)


async def _wait(what: Callable[[], object], seconds: float) -> None:
    """Wait for something, for so many seconds at most."""
    waiting = what()
    assert asyncio.iscoroutine(waiting)
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        return
