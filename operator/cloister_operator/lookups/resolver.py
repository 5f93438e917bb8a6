"""Looks up what decisions need from outside the cache: releases, images, DNS, values of secrets.

Lookups run outside the work queue, in lanes with a share for each organization and remote host,
equal ones as one (single flight). The result is cached and enqueues the keys that wait for it.
Reconciles read the cache through `results`; they never wait.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from cachetools import LRUCache

from cloister_clients.clock import Clock, utc_now
from cloister_clients.lanes.lane import HostLeftAlone
from cloister_crds.backoff import backoff_delay
from cloister_crds.lifecycle.state.observed import (
    Failed,
    Known,
    LookupResult,
    Need,
    NeedDns,
    NeedImage,
    NeedLatest,
    NeedRelease,
    NeedSecretValues,
    SecretRefKey,
)
from cloister_operator.cache.reconcile_memory import memory_size
from cloister_operator.lookups.external_lookup import Lookup, TimedOut
from cloister_operator.lookups.lanes import Lanes, LookupUsers, ResultCache
from cloister_operator.telemetry.metrics import OperatorMetrics
from cloister_operator.workqueue.triggers import Key

logger = logging.getLogger(__name__)

_SHARED_FOR = timedelta(seconds=5)
"""How long a result is reused for an equal lookup of another object."""
_CACHED_BYTES = 128 * 1024**2
"""Memory of the results of all organizations together, in bytes."""
_REMEMBERED = 8192
"""Lookups whose failures in a row are counted at most; the least recently used are dropped."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How a lookup ended."""

    result: LookupResult
    size: int
    """Memory of the result, in bytes."""
    performed: bool = True
    """False = it was not even tried, and does not count for its own backoff."""


class LookupResolver:
    """Cache of results, and bounded, single-flight lookups."""

    def __init__(
        self,
        lookup: Lookup,
        *,
        enqueue: Callable[[Key], None],
        metrics: OperatorMetrics,
        lanes: Lanes,
        clock: Clock = utc_now,
    ) -> None:
        self._lookup = lookup
        self._enqueue = enqueue
        self._metrics = metrics
        self._clock = clock
        self._lanes = lanes
        self._users = LookupUsers()
        self._results = ResultCache(_CACHED_BYTES, dropped=self._users.forget_need)
        self._recent: dict[Hashable, _Outcome] = {}
        self._failures: LRUCache[Need, int] = LRUCache(_REMEMBERED)
        self._waiting: defaultdict[tuple[Need, str], set[Key]] = defaultdict(set)
        self._flights: dict[Hashable, asyncio.Task[_Outcome]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        metrics.observe_lookups(lanes.by_name, cached=lambda: self._results.size)

    @property
    def results(self) -> Mapping[Need, LookupResult]:
        """The cached results."""
        return self._results

    def request(self, need: Need, key: Key) -> None:
        """Start a lookup, unless it is cached or under way; the result enqueues the key.

        It counts for the organization whose namespace the key has. One that failed transiently is
        repeated once its backoff is over.
        """
        self._users.add(need, key)
        result = self._results.get(need)
        if isinstance(result, Known):
            return
        if isinstance(result, Failed) and not self._due(result):
            return
        organization = key.namespace
        under_way = (need, organization) in self._waiting
        self._waiting[need, organization].add(key)
        if not under_way:
            task = asyncio.create_task(self._resolve(need, organization), name=f"resolve {need}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def reuse_recent(self, need: Need, key: Key) -> bool:
        """Reuse the result of an equal lookup of another object that is seconds old.

        Returns
        -------
        bool
            True when it was not cached before and now is, without a request and a reconcile.
        """
        if need in self._results or (need, key.namespace) in self._waiting:
            return False
        recent = self._recent_outcome(_identity(need))
        if recent is not None:
            self._users.add(need, key)
            self._cache(need, recent, key.namespace)
        return recent is not None

    def forget(self, key: Key) -> None:
        """Drop the results that only one object needed, which is gone."""
        for need in self._users.forget_key(key):
            self._results.remove(need)
            self._failures.pop(need, None)

    def invalidate(self, need: Need) -> None:
        """Drop a result, so that it is looked up again."""
        self._results.remove(need)

    async def aclose(self) -> None:
        """Cancel the lookups under way."""
        for task in (*self._tasks, *self._flights.values()):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._flights.values(), return_exceptions=True)

    def _due(self, failed: Failed) -> bool:
        """Return whether a failed lookup may be repeated."""
        return failed.transient and (failed.retry_at is None or failed.retry_at <= self._clock())

    async def _resolve(self, need: Need, organization: str) -> None:
        """Get one result, cache it, enqueue the keys that wait for it."""
        outcome = await self._single_flight(need, organization)
        result = outcome.result
        self._metrics.looked_up(
            type(need).__name__, "known" if isinstance(result, Known) else result.reason
        )
        if isinstance(result, Failed):
            if outcome.performed:
                result = self._with_backoff(need, result)
            logger.info("%s: %s", result.reason, result.message)
        if need in self._users:
            self._cache(need, _Outcome(result, outcome.size), organization)
        for key in self._waiting.pop((need, organization), ()):
            self._enqueue(key)

    def _cache(self, need: Need, outcome: _Outcome, organization: str) -> None:
        """Cache a result."""
        if isinstance(outcome.result, Known):
            self._failures.pop(need, None)
        self._results.put(need, outcome.result, organization, outcome.size)

    def _with_backoff(self, need: Need, failed: Failed) -> Failed:
        """Add when to repeat: what the other side wanted, or our own backoff when that is later."""
        self._failures[need] = self._failures.get(need, 0) + 1
        if not failed.transient:
            return failed
        own = failed.at + backoff_delay(self._failures[need])
        return Failed(
            failed.reason, failed.message, True, failed.at, max(own, failed.retry_at or own)
        )

    def _recent_outcome(self, identity: Hashable) -> _Outcome | None:
        """Return a result that is seconds old; None if there is none, or it failed."""
        recent = self._recent.get(identity)
        if recent is None or not isinstance(recent.result, Known):
            return None
        return recent if abs(self._clock() - recent.result.at) < _SHARED_FOR else None

    async def _single_flight(self, need: Need, organization: str) -> _Outcome:
        """Share a lookup, or a result that is seconds old, with equal lookups of other objects."""
        identity, lane, host = _identity(need), self._lanes.of(need), self._lanes.host(need)
        recent = self._recent_outcome(identity)
        if recent is not None:
            return recent
        flight = self._flights.get(identity)
        if flight is not None:
            # It need not wait for the share of the first caller.
            lane.join(identity, organization, host)
            return await asyncio.shield(flight)
        try:
            lane.enter(identity, organization, host)
        except HostLeftAlone as left:
            return self._left_alone(need, left)
        flight = asyncio.create_task(self._perform(need), name=f"lookup {identity}")
        self._flights[identity] = flight

        def end(_: object) -> None:
            del self._flights[identity]
            lane.leave(identity)

        flight.add_done_callback(end)
        return await asyncio.shield(flight)

    async def _perform(self, need: Need) -> _Outcome:
        """Perform a lookup that has entered its lane, once it is its turn."""
        lane, host, identity = self._lanes.of(need), self._lanes.host(need), _identity(need)
        try:
            async with lane.turn(identity, host) as turn:
                result = await self._performed(need)
                turn.timed_out = isinstance(result, TimedOut)
        except HostLeftAlone as left:
            return self._left_alone(need, left)
        # A large file has many parts, and counting them would block the event loop.
        outcome = _Outcome(result, await asyncio.to_thread(memory_size, result))
        self._prune()
        self._recent[identity] = outcome
        return outcome

    def _left_alone(self, need: Need, left: HostLeftAlone) -> _Outcome:
        """Fail a lookup whose host is not queried for a while."""
        failed = Failed(
            self._lanes.unavailable(need),
            f"{left.host} did not respond in time lately and is not queried until "
            f"{left.until:%H:%M:%S} UTC; if it stays so, check the host",
            True,
            self._clock(),
            left.until,
        )
        return _Outcome(failed, memory_size(failed), performed=False)

    async def _performed(self, need: Need) -> LookupResult:
        """Perform a lookup; an unexpected error is a transient failure."""
        try:
            return await self._lookup(need)
        except Exception as error:
            logger.exception("a lookup failed unexpectedly: %s", _identity(need))
            message = f"an internal error ({type(error).__name__}); the operator's log has more"
            return Failed("InternalError", message, True, self._clock())

    def _prune(self) -> None:
        """Drop results that are too old to be reused."""
        now: datetime = self._clock()
        for identity in [
            each
            for each, outcome in self._recent.items()
            if abs(now - outcome.result.at) >= _SHARED_FOR
        ]:
            del self._recent[identity]


def _identity(need: Need) -> Hashable:
    """Return the identity of a lookup: equal for equal lookups of different objects."""
    match need:
        case NeedRelease():
            return ("release", need.repo, need.tag, need.commit, need.kept, need.tiers)
        case NeedImage():
            return ("image", need.image, need.namespace, need.platform, need.credentials)
        case NeedSecretValues():
            refs: tuple[SecretRefKey, ...] = need.refs
            return ("secrets", need.namespace, refs)
        case NeedDns():
            # One lookup for each request: who corrected a record checks again within seconds.
            return ("dns", need.domain, need.since, need.request)
        case NeedLatest():
            return ("latest", need.repo, need.than, need.request)
