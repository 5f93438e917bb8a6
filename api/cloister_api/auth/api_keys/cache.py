"""A cache of all regular keys that are not deleted, kept current by the ledger's change counters.

A change by another replica is noticed within half a second, one by this process at once, a new key
at its first use. While the ledger is unreachable, cached keys stay in use.
"""

import asyncio
import hmac
import logging
import time
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cloister_api.auth.api_keys.decision import UNKNOWN_KEY, CachedApiKey, judge
from cloister_api.auth.api_keys.hosts import HostnameOwners
from cloister_api.auth.token_bucket import RateLimit, UnknownKeyLimit, consume
from cloister_api.errors import ApiError
from cloister_api.ledger.keys.api_keys import ApiKeys
from cloister_api.ledger.keys.key_format import REGULAR_PREFIX, well_formed
from cloister_api.ledger.keys.key_material import KeySealer
from cloister_api.ledger.replicas import BEAT_SECONDS, Replicas
from cloister_api.ledger.tables.core import API_KEYS, KEY_TOTALS, SEQUENCES
from cloister_clients.clock import Clock

__all__ = ["ApiKeyCache"]

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
"""Seconds between two polls of the counters."""
MISS_SECONDS = 0.05
"""Least time between two polls because of cache misses: guessing must not load the ledger."""
USE_SECONDS = 60.0
"""Seconds between two writes of when keys were last used."""


class ApiKeyCache:
    """Regular keys by their index."""

    def __init__(
        self,
        engine: AsyncEngine,
        material: KeySealer,
        hosts: HostnameOwners,
        clock: Clock,
        replicas: Replicas,
        rate: RateLimit | None,
        unknown: UnknownKeyLimit,
    ) -> None:
        self._engine = engine
        self._material = material
        self._hosts = hosts
        self._clock = clock
        self._keys = ApiKeys(engine, material)
        self._replicas = replicas
        self._whole_rate = rate
        self._rate = rate
        self._unknown = unknown
        self.facades = 1
        """How many replicas run; this one is among them."""
        self._by_index: dict[bytes, CachedApiKey] = {}
        self._by_id: dict[int, CachedApiKey] = {}
        self._seen = {"api_keys": -1, "usage": -1}
        self._polled_at = 0.0
        self.read_at = time.monotonic()
        """When the ledger was last read, by the monotonic clock; read by the metrics' thread."""
        self._lock = asyncio.Lock()
        self._uses: dict[int, float] = {}

    async def check(self, value: str, domain: str | None, requested_host: str | None) -> None:
        """Check that a key may be used now.

        Parameters
        ----------
        value
            The key as the client sent it.
        domain
            Host name that the enclave serves; None = not reported.
        requested_host
            Host name that the client requested; None = not reported. One that no organization
            here serves is a proxy's and is ignored.

        Raises
        ------
        ApiError
            401, 402, 403 or 429 when it may not.
        """
        key = await self._find(value)
        places = () if domain is None else (self._hosts.owner(domain),)
        if requested_host is not None and requested_host != domain:
            place = self._hosts.owner(requested_host)
            places = places if place is None else (*places, place)
        now = self._clock().timestamp()
        refused = judge(key, self._hosts.organization(key.organization), places, now)
        if refused is not None:
            raise refused
        if self._rate is not None:
            wait = consume(key, self._rate, asyncio.get_running_loop().time())
            if wait:
                raise rate_limited(wait)
        self._uses[key.id] = now

    async def _find(self, value: str) -> CachedApiKey:
        if not well_formed(value, REGULAR_PREFIX):
            raise UNKNOWN_KEY
        index = self._material.index(value)
        key = self._by_index.get(index)
        if key is None:
            now = asyncio.get_running_loop().time()
            self._unknown.take(now)
            await self._poll_since(now)
            key = self._by_index.get(index)
        # The lookup compared hashes of secrets, not secrets; this comparison takes constant time.
        if key is None or not hmac.compare_digest(key.index, index):
            raise UNKNOWN_KEY
        return key

    async def _poll_since(self, since: float) -> None:
        """Poll the ledger unless another task has done so since; all that wait share one poll."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if self._polled_at >= since:
                return
            await asyncio.sleep(max(0.0, self._polled_at + MISS_SECONDS - loop.time()))
            await self._poll()

    async def refresh(self) -> None:
        """Read what changed in the ledger."""
        async with self._lock:
            await self._poll()

    async def _poll(self) -> None:
        begun = asyncio.get_running_loop().time()
        async with self._engine.connect() as connection:
            rows = (await connection.execute(select(SEQUENCES.c.name, SEQUENCES.c.value))).all()
            present = {row.name: row.value for row in rows}
            if present["api_keys"] != self._seen["api_keys"]:
                await self._read_keys(connection)
            if present["usage"] != self._seen["usage"]:
                await self._read_totals(connection)
        self._seen = present
        self._polled_at = begun
        self.read_at = time.monotonic()

    async def _read_keys(self, connection: AsyncConnection) -> None:
        names = ("id", "key_index", "organization", "organization_id", "disabled")
        columns = [API_KEYS.c[name] for name in (*names, "expires_at", "max_tokens", "deleted_at")]
        query = select(*columns).where(API_KEYS.c.change > self._seen["api_keys"])
        if not self._by_id:
            query = query.where(API_KEYS.c.deleted_at.is_(None))
        for row in (await connection.execute(query)).all():
            known = self._by_id.get(row.id)
            if row.deleted_at is not None:
                if known is not None:
                    del self._by_id[row.id], self._by_index[known.index]
                continue
            key = CachedApiKey(
                id=row.id,
                index=row.key_index,
                organization=row.organization,
                organization_id=row.organization_id,
                disabled=row.disabled,
                expires_at=row.expires_at.timestamp() if row.expires_at else None,
                max_tokens=row.max_tokens,
            )
            if known is not None:
                key.used, key.tokens = known.used, known.tokens
                key.refilled_at = known.refilled_at
            self._by_id[key.id] = self._by_index[key.index] = key

    async def _read_totals(self, connection: AsyncConnection) -> None:
        used = (KEY_TOTALS.c.input_tokens + KEY_TOTALS.c.output_tokens).label("used")
        query = select(KEY_TOTALS.c.key_id, used).where(KEY_TOTALS.c.change > self._seen["usage"])
        for row in (await connection.execute(query)).all():
            key = self._by_id.get(row.key_id)
            if key is not None:
                key.used = row.used

    async def write_uses(self) -> None:
        """Write when keys were last used."""
        uses, self._uses = self._uses, {}
        if uses:
            times = {key_id: datetime.fromtimestamp(at, UTC) for key_id, at in uses.items()}
            await self._keys.used(times)

    async def beat(self) -> None:
        """Send this replica's heartbeat, and divide the rate by the number of replicas."""
        count = self.facades = max(1, await self._replicas.beat(self._clock()))
        self._rate = None if self._whole_rate is None else self._whole_rate.shared(count)

    async def close(self) -> None:
        """Write what is not written yet and deregister this replica."""
        await self.write_uses()
        await self._replicas.leave()

    async def run(self) -> None:
        """Poll the ledger until cancelled."""
        loop = asyncio.get_running_loop()
        written = beaten = loop.time()
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self.refresh()
                if loop.time() - beaten > BEAT_SECONDS:
                    beaten = loop.time()
                    await self.beat()
                if loop.time() - written > USE_SECONDS:
                    written = loop.time()
                    await self.write_uses()
            except Exception:  # the ledger may be locked or unreachable for a while
                logger.exception("the ledger cannot be read; cached keys stay in use")


def rate_limited(wait: float) -> ApiError:
    """Build a 429 with the time after which to try again."""
    return ApiError(
        429,
        "RATE_LIMITED",
        "rate limit of this API key exceeded; try again after Retry-After",
        retry_after=max(1, -int(-wait // 1)),
    )
