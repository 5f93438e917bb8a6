"""Looks up what decisions need from outside the cache: releases, images, DNS, values of secrets.

Lookups run beside the work queue, a bounded number at once, equal ones as one (single flight). The
result is cached and enqueues the keys that wait for it. Reconciles read the cache through
`results`; they never wait.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from cachetools import LRUCache

from cloister_clients.clock import Clock, utc_now
from cloister_clients.dns import AuthoritativeDns, DnsError
from cloister_clients.kube import KubeClient, KubeError, NotFound
from cloister_clients.kube.kinds import SECRET
from cloister_clients.registry import Platform, RegistryError
from cloister_clients.sources import SourceError, SourceProvider
from cloister_crds.config import Rules, parse
from cloister_crds.kinds.container import LatestRelease
from cloister_crds.lifecycle.backoff import backoff_delay
from cloister_crds.lifecycle.state.observed import (
    DnsFacts,
    Failed,
    Known,
    LookupResult,
    Need,
    NeedDns,
    NeedImage,
    NeedLatest,
    NeedRelease,
    NeedSecretValues,
    NewestRelease,
    RegistryImage,
    ReleaseFacts,
    SecretRefKey,
    SecretValues,
)
from cloister_operator.enclave.pod.unenforced import unenforced
from cloister_operator.lookups.image_credentials import ImageLookup
from cloister_operator.telemetry.metrics import OperatorMetrics
from cloister_operator.workqueue.keys import Key

__all__ = ["ExternalLookup", "Lookup", "LookupResolver"]

logger = logging.getLogger(__name__)

_SHARED_FOR = timedelta(seconds=5)
"""How long a result is reused for an equal lookup of another object."""
_CACHED = 20_000
"""Results in the cache at most; the least recently used are dropped first."""


class Lookup(Protocol):
    """Performs one lookup; never raises for what a user or a server did wrong."""

    async def __call__(self, need: Need) -> LookupResult:
        """Return the result."""


class ExternalLookup:
    """The real `Lookup`: source provider, registries, DNS, core Secrets."""

    def __init__(
        self,
        *,
        source: SourceProvider,
        images: ImageLookup,
        client: KubeClient,
        dns: AuthoritativeDns,
        rules: Rules,
        clock: Clock = utc_now,
    ) -> None:
        self._source = source
        self._dns = dns
        self._images = images
        self._client = client
        self._rules = rules
        self._clock = clock

    async def __call__(self, need: Need) -> LookupResult:
        """Return the result, or why there is none."""
        result: LookupResult
        try:
            match need:
                case NeedRelease():
                    result = Known(await self._release(need), self._clock())
                case NeedImage():
                    result = Known(await self._image(need), self._clock())
                case NeedSecretValues():
                    result = Known(await self._secrets(need), self._clock())
                case NeedDns():
                    result = Known(await self._records(need), self._clock())
                case NeedLatest():
                    result = Known(await self._newest(need), self._clock())
        except (SourceError, RegistryError, DnsError) as error:
            return self._failed(error.reason, error.message, error, transient=error.transient)
        except KubeError as error:
            message = (
                f"the API server did not report whether the secrets are there: {error.message}"
            )
            return self._failed("ClusterUnavailable", message, error, transient=True)
        else:
            return result

    async def _release(self, need: NeedRelease) -> ReleaseFacts:
        """Read a release and validate its file."""
        release = await self._source.resolve(need.repo, need.tag, commit=need.commit)
        # Validation of a large file takes milliseconds that other reconciles need not wait for.
        rules = replace(
            self._rules,
            cpu_tiers=need.tiers.cpus,
            memory_tiers=need.tiers.memory,
            gpu_counts=need.tiers.gpus,
        )
        parsed = await asyncio.to_thread(parse, release.file, rules=rules)
        return ReleaseFacts(
            repo=release.repo,
            tag=release.tag,
            commit=release.commit,
            published=release.published,
            file_name=release.file_name,
            raw=release.file,
            digest=parsed.digest,
            config=parsed.config,
            problems=parsed.problems,
            unenforced=unenforced(parsed.config) if parsed.config else (),
        )

    async def _image(self, need: NeedImage) -> RegistryImage:
        """Read an image's description."""
        system, _, rest = need.platform.partition("/")
        architecture, _, variant = rest.partition("/")
        found = await self._images.resolve(need, Platform(system, architecture, variant))
        return RegistryImage(
            image=need.image,
            entrypoint=found.entrypoint,
            cmd=found.cmd,
            env=found.env,
            user=found.user,
            working_dir=found.working_dir,
            stop_signal=found.stop_signal,
        )

    async def _newest(self, need: NeedLatest) -> NewestRelease:
        """Find the newest release, and when it differs, the publication time of the present one."""
        newest = await self._source.latest(need.repo)
        if newest is None:
            return NewestRelease(newest=None)
        found = LatestRelease(tag=newest.tag, commit=newest.commit, published_at=newest.published)
        if need.than is None or need.than == newest.tag:
            return NewestRelease(newest=found)
        present = await self._source.resolve(need.repo, need.than)
        return NewestRelease(newest=found, than_published=present.published)

    async def _secrets(self, need: NeedSecretValues) -> SecretValues:
        """Read which values exist; the values are dropped at once."""
        present: dict[str, frozenset[str]] = {}
        for name in sorted({ref.secret for ref in need.refs}):
            try:
                body = await self._client.get(SECRET, name, need.namespace)
                present[name] = frozenset(body.get("data") or {})
            except NotFound:
                present[name] = frozenset()
        return SecretValues(
            missing=tuple(ref for ref in need.refs if ref.key not in present[ref.secret])
        )

    async def _records(self, need: NeedDns) -> DnsFacts:
        """Look up both records of a custom domain."""
        texts, aliases = await asyncio.gather(
            self._dns.texts(need.txt_name), self._dns.alias(need.domain)
        )
        return DnsFacts(texts, aliases)

    def _failed(self, reason: str, message: str, error: Exception, *, transient: bool) -> Failed:
        """Return why a lookup failed, and when the other side wants to be queried again."""
        now = self._clock()
        wait = getattr(error, "retry_after", None)
        retry_at = now + timedelta(seconds=wait) if transient and wait else None
        return Failed(reason, message, transient, now, retry_at)


class LookupResolver:
    """Cache of results, and bounded, single-flight lookups."""

    def __init__(
        self,
        lookup: Lookup,
        *,
        enqueue: Callable[[Key], None],
        metrics: OperatorMetrics,
        limit: int = 8,
        clock: Clock = utc_now,
    ) -> None:
        self._lookup = lookup
        self._enqueue = enqueue
        self._metrics = metrics
        self._clock = clock
        self._slots = asyncio.Semaphore(limit)
        self._results: LRUCache[Need, LookupResult] = LRUCache(_CACHED)
        self._recent: dict[Hashable, LookupResult] = {}
        self._failures: LRUCache[Need, int] = LRUCache(_CACHED)
        self._waiting: defaultdict[Need, set[Key]] = defaultdict(set)
        self._flights: dict[Hashable, asyncio.Task[LookupResult]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def results(self) -> Mapping[Need, LookupResult]:
        """The cached results."""
        return self._results

    def request(self, need: Need, key: Key) -> None:
        """Start a lookup, unless it is cached or under way; the result enqueues the key.

        One that failed transiently is repeated once its backoff is over.
        """
        result = self._results.get(need)
        if isinstance(result, Known):
            return
        if isinstance(result, Failed) and not self._due(result):
            return
        under_way = need in self._waiting
        self._waiting[need].add(key)
        if not under_way:
            task = asyncio.create_task(self._resolve(need), name=f"resolve {need}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def reuse_recent(self, need: Need) -> bool:
        """Reuse the result of an equal lookup of another object that is seconds old.

        Returns
        -------
        bool
            True when it was not cached before and now is, without a request and a reconcile.
        """
        if need in self._results or need in self._waiting:
            return False
        recent = self._recent_result(_identity(need))
        if recent is not None:
            self._cache(need, recent)
        return recent is not None

    def invalidate(self, need: Need) -> None:
        """Drop a result, so that it is looked up again."""
        self._results.pop(need, None)

    async def aclose(self) -> None:
        """Cancel the lookups under way."""
        for task in (*self._tasks, *self._flights.values()):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._flights.values(), return_exceptions=True)

    def _due(self, failed: Failed) -> bool:
        """Return whether a failed lookup may be repeated."""
        return failed.transient and (failed.retry_at is None or failed.retry_at <= self._clock())

    async def _resolve(self, need: Need) -> None:
        """Get one result, cache it, enqueue the keys that wait for it."""
        result = await self._single_flight(need)
        outcome = "known" if isinstance(result, Known) else result.reason
        self._metrics.looked_up(type(need).__name__, outcome)
        if isinstance(result, Failed):
            result = self._with_backoff(need, result)
            logger.info("%s: %s", result.reason, result.message)
        self._cache(need, result)
        for key in self._waiting.pop(need, ()):
            self._enqueue(key)

    def _cache(self, need: Need, result: LookupResult) -> None:
        """Cache a result."""
        if isinstance(result, Known):
            self._failures.pop(need, None)
        self._results[need] = result

    def _with_backoff(self, need: Need, failed: Failed) -> Failed:
        """Add when to repeat: what the other side wanted, or our own backoff when that is later."""
        self._failures[need] = self._failures.get(need, 0) + 1
        if not failed.transient:
            return failed
        own = failed.at + backoff_delay(self._failures[need])
        return Failed(
            failed.reason, failed.message, True, failed.at, max(own, failed.retry_at or own)
        )

    def _recent_result(self, identity: Hashable) -> LookupResult | None:
        """Return a result that is seconds old; None = there is none, or it failed."""
        recent = self._recent.get(identity)
        if isinstance(recent, Known) and abs(self._clock() - recent.at) < _SHARED_FOR:
            return recent
        return None

    async def _single_flight(self, need: Need) -> LookupResult:
        """Share a lookup, or a result that is seconds old, with equal lookups of other objects."""
        identity = _identity(need)
        recent = self._recent_result(identity)
        if recent is not None:
            return recent
        flight = self._flights.get(identity)
        if flight is None:
            flight = asyncio.create_task(self._perform(need), name=f"lookup {identity}")
            self._flights[identity] = flight
            flight.add_done_callback(lambda _: self._flights.pop(identity, None))
        return await asyncio.shield(flight)

    async def _perform(self, need: Need) -> LookupResult:
        """Perform a lookup once a slot is free."""
        async with self._slots:
            try:
                result = await self._lookup(need)
            except Exception as error:
                logger.exception("a lookup failed unexpectedly: %s", _identity(need))
                message = f"an internal error ({type(error).__name__}); the operator's log has more"
                result = Failed("InternalError", message, True, self._clock())
        self._prune()
        self._recent[_identity(need)] = result
        return result

    def _prune(self) -> None:
        """Drop results that are too old to be reused."""
        now: datetime = self._clock()
        for identity in [
            q for q, result in self._recent.items() if abs(now - result.at) >= _SHARED_FOR
        ]:
            del self._recent[identity]


def _identity(need: Need) -> Hashable:
    """Return the identity of a lookup: equal for equal lookups of different objects."""
    match need:
        case NeedRelease():
            return ("release", need.repo, need.tag, need.commit, need.tiers)
        case NeedImage():
            return ("image", need.image, need.namespace, need.platform, need.credentials)
        case NeedSecretValues():
            refs: tuple[SecretRefKey, ...] = need.refs
            return ("secrets", need.namespace, refs)
        case NeedDns():
            # One lookup for each request: who corrected a record checks again within seconds.
            return ("dns", need.domain, need.request)
        case NeedLatest():
            return ("latest", need.repo, need.than, need.request)
