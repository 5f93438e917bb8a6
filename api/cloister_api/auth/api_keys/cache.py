"""All living regular keys in memory, kept up to date from the ledger's counters of changes.

A change by another replica is seen within half a second, one by this process at once, a new key as
soon as it is asked for. While the ledger is away, what is in memory goes on being used.
"""

import asyncio
import hmac
import logging
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cloister_api.auth.api_keys.decision import UNKNOWN_KEY, CachedApiKey, judge
from cloister_api.auth.api_keys.hosts import HostnameOwners
from cloister_api.auth.token_bucket import RateLimit, consume
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
"""Seconds between two looks at the counters."""
MISS_SECONDS = 0.05
"""Least time between two looks because of unknown keys: guessing must not load the ledger."""
USE_SECONDS = 60.0
"""Seconds between two writes of when keys were last used."""


class ApiKeyCache:
    """The keys by their index."""

    def __init__(
        self,
        engine: AsyncEngine,
        material: KeySealer,
        hosts: HostnameOwners,
        clock: Clock,
        replicas: Replicas,
        rate: RateLimit | None,
    ) -> None:
        self._engine = engine
        self._material = material
        self._hosts = hosts
        self._clock = clock
        self._keys = ApiKeys(engine, material)
        self._replicas = replicas
        self._whole_rate = rate
        self._rate = rate
        self.facades = 1
        """How many facades there are; this one is among them."""
        self._by_index: dict[bytes, CachedApiKey] = {}
        self._by_id: dict[int, CachedApiKey] = {}
        self._seen = {"api_keys": -1, "usage": -1}
        self._looked_at = 0.0
        self._lock = asyncio.Lock()
        self._uses: dict[int, float] = {}

    async def check(self, value: str, domain: str | None, requested_host: str | None) -> None:
        """Return whether a key may be used now.

        Parameters
        ----------
        value
            The key as the client sent it.
        domain
            Host name that the enclave serves; None = not told.
        requested_host
            Host name that the client asked for; None = not told. One that nobody here serves is
            a proxy's and says nothing.

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
            await self._look_after(asyncio.get_running_loop().time())
            key = self._by_index.get(index)
        # The look-up compared hashes of secrets, not secrets; this comparison takes one time
        # whatever was found.
        if key is None or not hmac.compare_digest(key.index, index):
            raise UNKNOWN_KEY
        return key

    async def _look_after(self, asked_at: float) -> None:
        """Look at the ledger unless somebody has done so since; all who wait share one look."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if self._looked_at >= asked_at:
                return
            await asyncio.sleep(max(0.0, self._looked_at + MISS_SECONDS - loop.time()))
            await self._look()

    async def refresh(self) -> None:
        """Take over what changed in the ledger."""
        async with self._lock:
            await self._look()

    async def _look(self) -> None:
        begun = asyncio.get_running_loop().time()
        async with self._engine.connect() as connection:
            rows = (await connection.execute(select(SEQUENCES.c.name, SEQUENCES.c.value))).all()
            present = {row.name: row.value for row in rows}
            if present["api_keys"] != self._seen["api_keys"]:
                await self._take_keys(connection)
            if present["usage"] != self._seen["usage"]:
                await self._take_totals(connection)
        self._seen = present
        self._looked_at = begun

    async def _take_keys(self, connection: AsyncConnection) -> None:
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
                key.used, key.credit = known.used, known.credit
                key.credited_at = known.credited_at
            self._by_id[key.id] = self._by_index[key.index] = key

    async def _take_totals(self, connection: AsyncConnection) -> None:
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
        """Tell the other replicas that this one runs, and share the rate with them."""
        count = self.facades = max(1, await self._replicas.beat(self._clock()))
        self._rate = None if self._whole_rate is None else self._whole_rate.shared(count)

    async def close(self) -> None:
        """Write what is not written yet and leave the replicas."""
        await self.write_uses()
        await self._replicas.leave()

    async def run(self) -> None:
        """Follow the ledger until cancelled."""
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
            except Exception:  # the ledger may be locked or away for a while; keys stay in memory
                logger.exception("the ledger cannot be read; keys in memory go on being used")


def rate_limited(wait: float) -> ApiError:
    """429 with the time after which to try again."""
    return ApiError(
        429,
        "RATE_LIMITED",
        "this API key is used too often at present; try again after Retry-After",
        retry_after=max(1, -int(-wait // 1)),
    )
