"""Cache of parsed configuration files, so that one file is parsed once for all its uses."""

import asyncio

from cachetools import LRUCache

from cloister_crds.config import ParsedConfig, Rules, parse
from cloister_operator.cache.memory_size import memory_size

__all__ = ["ConfigCache"]

_ANY = range(2**31)
_STORED = Rules(cpu_tiers=_ANY, memory_tiers=_ANY, gpu_counts=_ANY, service=None)
_KEPT_BYTES = 64 * 1024**2
"""Memory of cached files with what they were parsed to; the least recently used are dropped."""


class ConfigCache:
    """A bounded cache of parsed files of Enclaves.

    Each was admitted when its Enclave was created, by the settings of that time. No later setting
    refuses it here: every amount is valid, and strict rules are warnings.
    """

    def __init__(self, *, max_bytes: int = _KEPT_BYTES) -> None:
        self._parsed: LRUCache[bytes, tuple[ParsedConfig, int]] = LRUCache(
            max_bytes, getsizeof=lambda kept: kept[1]
        )

    @property
    def size(self) -> int:
        """Memory of the files that are kept, in bytes."""
        return int(self._parsed.currsize)

    async def parse(self, raw: bytes) -> ParsedConfig:
        """Parse the bytes of a file, outside the event loop."""
        kept = self._parsed.get(raw)
        if kept is None:
            # A large file takes milliseconds, which would block the event loop.
            kept = await asyncio.to_thread(self._parse, raw)
            if kept[1] <= self._parsed.maxsize:
                self._parsed[raw] = kept
        return kept[0]

    def _parse(self, raw: bytes) -> tuple[ParsedConfig, int]:
        """Parse a file; return with it the memory that both take."""
        parsed = parse(raw, rules=_STORED)
        return parsed, memory_size((raw, parsed))
