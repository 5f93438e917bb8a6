"""Compares the store with what the server has, by lists of metadata alone.

The framework that watches reports nothing for an object that vanished while it was listing anew
(after a lost connection, an expired version, a stop of the process). So each kind is compared
whenever the framework has listed it again, and regularly besides. The same comparison says when
the first reading of the cluster is complete.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from cloister_clients.kube import KindRef, KubeClient, KubeError, ListPage
from cloister_operator.cache.projections import WATCHED_KINDS, Body, WatchedKind
from cloister_operator.cache.store import Store
from cloister_operator.telemetry.liveness import Liveness
from cloister_operator.telemetry.metrics import OperatorMetrics

__all__ = ["Relister"]

logger = logging.getLogger(__name__)

_SETTLE = 1.0
"""Seconds after the first sign of a new list until it is compared: the signs come in bursts."""
_LOOK = 0.1
"""Seconds between two looks whether the store has everything at the start."""
_PATIENCE = 5.0
"""Seconds of such looks in which nothing comes until the server is asked again."""
_RETRY = 2.0
"""Seconds until a comparison that failed is tried again."""


class Relister:
    """Compares kinds when asked to, and regularly."""

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
        self._asked: dict[KindRef, asyncio.Event] = {ref: asyncio.Event() for ref in self._watched}
        self._synced = asyncio.Event()
        self._lagging: dict[KindRef, frozenset[str]] = {}

    @property
    def synced(self) -> bool:
        """Whether the store has had everything that the server had at the start."""
        return self._synced.is_set()

    def request(self, ref: KindRef) -> None:
        """Ask for a comparison of a kind soon; before the first sync there is no need."""
        if self.synced:
            self._asked[ref].set()

    async def sync(self) -> None:
        """Wait until the store has every object that the server has, and no other.

        A pass over half of the cluster would decide wrongly, so none runs before. The store may
        have been filled for long, by a process that only now leads.
        """
        await asyncio.gather(*(self._sync(ref) for ref in self._watched))
        self._synced.set()

    async def run(self) -> None:
        """Compare each kind regularly and when asked, for ever."""
        async with asyncio.TaskGroup() as tasks:
            for ref in self._watched:
                tasks.create_task(self._follow(ref), name=f"relist {ref.plural}")

    async def compare(self, ref: KindRef) -> int:
        """Take out of the store what the server no longer has.

        Parameters
        ----------
        ref
            Kind to compare.

        Returns
        -------
        int
            How many objects had vanished.

        Raises
        ------
        KubeError
            When the server refuses or cannot be reached.
        """
        page = await self._list(ref)
        vanished = self._take_out(ref, page)
        self._check_watch(ref, page.items)
        self._liveness.heartbeat("comparison with the server", stale=3 * self._every + 60)
        return vanished

    async def _list(self, ref: KindRef) -> ListPage:
        """Ask the server which objects of a kind there are, and in which versions."""
        selector = self._watched[ref].label_selector
        return await self._client.list(ref, label_selector=selector, metadata_only=True)

    def _take_out(self, ref: KindRef, page: ListPage) -> int:
        """Take out of the store what a list no longer has; answer how many objects."""
        version = int(page.resource_version)
        present = {
            (item["metadata"].get("namespace") or "", item["metadata"]["name"]):
                item["metadata"]["uid"]
            for item in page.items
        }  # fmt: skip
        vanished = 0
        for entry in self._store.entries(ref):
            if present.get((entry.namespace, entry.name)) != entry.uid and self._store.remove(
                ref, entry.namespace, entry.name, version
            ):
                vanished += 1
                logger.info("%s %s/%s vanished unseen", ref.kind, entry.namespace, entry.name)
        self._metrics.missed_deletions(ref.kind, vanished)
        return vanished

    def _check_watch(self, ref: KindRef, items: Iterable[Body]) -> None:
        """Complain when the store lacks the same versions in two comparisons: a watch is dead."""
        missing = frozenset(
            f"{item['metadata']['uid']} {item['metadata']['resourceVersion']}"
            for item in items
            if self._is_missing(ref, item)
        )
        still = missing & self._lagging.get(ref, frozenset())
        self._lagging[ref] = missing
        text = f"the watch of {ref.plural} is {len(still)} objects behind" if still else ""
        self._liveness.report_problem(f"watch {ref.plural}", text)

    def _is_missing(self, ref: KindRef, item: Body) -> bool:
        """Tell whether the store lacks an object of the server, or has an older version."""
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
            self._take_out(ref, page)
            if await self._arrives(ref, page.items):
                return

    async def _arrives(self, ref: KindRef, wanted: Iterable[Body]) -> bool:
        """Wait until the store has objects; False = one was perhaps deleted, and never comes.

        The server is not asked meanwhile: a list of everything costs both sides too much for that.
        Objects are looked for one after the other, in the order in which they come.
        """
        missing = list(wanted)[::-1]
        idle = 0
        while idle < round(_PATIENCE / _LOOK):
            before = len(missing)
            while missing and not self._is_missing(ref, missing[-1]):
                missing.pop()
            if not missing:
                return True
            idle = idle + 1 if len(missing) == before else 0
            await asyncio.sleep(_LOOK)
        return False

    async def _follow(self, ref: KindRef) -> None:
        """Compare one kind regularly and when asked."""
        asked = self._asked[ref]
        while True:
            await _wait(asked.wait, self._every)
            if asked.is_set():
                await asyncio.sleep(_SETTLE)
            asked.clear()
            try:
                await self.compare(ref)
            except KubeError as error:
                logger.warning("cannot compare %s: %s", ref.plural, error)
                asked.set()
                await asyncio.sleep(_RETRY)


async def _wait(what: Callable[[], object], seconds: float) -> None:
    """Wait for something, but not longer than that."""
    waiting = what()
    assert asyncio.iscoroutine(waiting)
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        return
