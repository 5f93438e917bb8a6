"""Keys in memory, by their index, which replicas keep current by polling the ledger."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Generic, TypeVar

from cloister_api.auth.token_bucket import UnknownKeyLimit
from cloister_api.ledger.availability import poll_backoff
from cloister_api.ledger.keys.key_material import KeySealer

Key = TypeVar("Key")
logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
"""Seconds between two polls of the counters."""
RETRY = poll_backoff(POLL_SECONDS)
"""Delays between polls that fail."""
MISS_SECONDS = 0.05
"""Least time between two polls because of cache misses: guessing must not load the ledger."""
USE_SECONDS = 60.0
"""Seconds between two writes of when keys were last used."""


class KeyCache(ABC, Generic[Key]):
    """Keys of a table; `_read` reads what changed.

    Parameters
    ----------
    write
        Writes when keys were last used, by their identifiers.
    """

    def __init__(
        self,
        material: KeySealer,
        unknown: UnknownKeyLimit,
        write: Callable[[dict[Any, datetime]], Awaitable[None]],
    ) -> None:
        self._material = material
        self._unknown = unknown
        self._write = write
        self._by_index: dict[bytes, Key] = {}
        self._polled_at = 0.0
        self.read_at = time.monotonic()
        """When the ledger was last read, by the monotonic clock; read by the metrics' thread."""
        self._lock = asyncio.Lock()
        self._uses: dict[Any, datetime] = {}
        self._periodic = [(USE_SECONDS, self.write_uses)]

    def index(self, value: str) -> bytes:
        """Return the index of a key's value."""
        return self._material.index(value)

    async def find(self, index: bytes) -> Key | None:
        """Return the key with an index; None if there is none.

        Raises
        ------
        ApiError
            429 when too many unknown ones were looked up.
        """
        key = self._by_index.get(index)
        if key is None:
            now = asyncio.get_running_loop().time()
            self._unknown.take(now)
            await self._poll_since(now)
            key = self._by_index.get(index)
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
        await self._read()
        self._polled_at = begun
        self.read_at = time.monotonic()

    @abstractmethod
    async def _read(self) -> None:
        """Read what changed in the ledger since the last time."""

    async def write_uses(self) -> None:
        """Write when keys were last used: a write for each use would bound their rate."""
        uses, self._uses = self._uses, {}
        if uses:
            await self._write(uses)

    async def run(self) -> None:
        """Poll the ledger until cancelled."""
        loop = asyncio.get_running_loop()
        done, failures = [loop.time() for _ in self._periodic], 0
        while True:
            await asyncio.sleep(RETRY.jittered(failures) if failures else POLL_SECONDS)
            try:
                await self.refresh()
                for number, (seconds, act) in enumerate(self._periodic):
                    if loop.time() - done[number] > seconds:
                        done[number] = loop.time()
                        await act()
                failures = 0
            except Exception:  # the ledger may be locked or unreachable for a while
                failures += 1
                logger.exception("the ledger cannot be read; cached keys stay in use")
