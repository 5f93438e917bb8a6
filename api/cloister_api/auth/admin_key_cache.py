"""All admin keys in memory, for the check of every request; the ledger is their truth.

A counter in the ledger, looked at twice a second, tells of changes by other processes; a key that
is not in memory makes it look at once, so that a new key works immediately.
"""

import asyncio
import logging
from datetime import datetime

from cloister_api.ledger.keys.admin_keys import AdminKey, AdminKeys
from cloister_api.ledger.keys.key_material import KeySealer

__all__ = ["AdminKeyCache"]

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
"""Seconds between two looks at the counter."""
MISS_SECONDS = 0.05
"""Least time between two looks because of unknown keys: guessing must not load the ledger."""
USE_SECONDS = 60.0
"""Seconds between two writes of when keys were last used."""


class AdminKeyCache:
    """The keys by their index."""

    def __init__(self, keys: AdminKeys, material: KeySealer) -> None:
        self._keys = keys
        self._material = material
        self._by_index: dict[bytes, AdminKey] = {}
        self._count = -1
        self._looked_at = 0.0
        self._lock = asyncio.Lock()
        self._used: dict[str, datetime] = {}

    def index(self, value: str) -> bytes:
        """Return the index of a key's value."""
        return self._material.index(value)

    def all(self) -> list[AdminKey]:
        """Return all keys, revoked ones included."""
        return list(self._by_index.values())

    async def find(self, index: bytes) -> AdminKey | None:
        """Return the key with an index; None = there is none."""
        key = self._by_index.get(index)
        if key is None:
            await self._look_after(asyncio.get_running_loop().time())
            key = self._by_index.get(index)
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
        """Read the keys anew if they changed."""
        async with self._lock:
            await self._look()

    async def _look(self) -> None:
        begun = asyncio.get_running_loop().time()
        count = await self._keys.change_count()
        if count != self._count:
            self._by_index = {key.index: key for key in await self._keys.all()}
            self._count = count
        self._looked_at = begun

    async def revoke(self, key: AdminKey, *, because: str, now: datetime) -> None:
        """Revoke a key for good and forget that it was valid."""
        await self._keys.revoke(key.id, because=because, now=now)
        await self.refresh()

    def note_use(self, key: AdminKey, now: datetime) -> None:
        """Remember that a key was used; written later, with others."""
        self._used[key.id] = now

    async def write_uses(self) -> None:
        """Write when keys were last used."""
        used, self._used = self._used, {}
        if used:
            await self._keys.used(used)

    async def run(self) -> None:
        """Follow the ledger until cancelled."""
        loop = asyncio.get_running_loop()
        written = loop.time()
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self.refresh()
                if loop.time() - written > USE_SECONDS:
                    written = loop.time()
                    await self.write_uses()
            except Exception:  # the ledger may be locked or away for a while; keys stay in memory
                logger.exception("the ledger cannot be read; keys in memory go on being used")
