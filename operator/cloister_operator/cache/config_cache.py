"""Cache of parsed configuration files, so that one file is parsed once for all its uses."""

import asyncio
from dataclasses import replace

from cachetools import LRUCache

from cloister_crds.config import ParsedConfig, Rules, parse
from cloister_operator.cache.memory_size import memory_size

__all__ = ["ConfigCache"]

_ANY = range(2**31)
_KEPT_BYTES = 64 * 1024**2
"""Memory of cached files with what they were parsed to; the least recently used are dropped."""


class ConfigCache:
    """A bounded cache of parsed files of Enclaves.

    Whether an organization may have as much was decided when the Enclave was created, by the tiers
    of its Host: here every amount is valid.
    """

    def __init__(self, rules: Rules, *, max_bytes: int = _KEPT_BYTES) -> None:
        self._rules = replace(rules, cpu_tiers=_ANY, memory_tiers=_ANY, gpu_counts=_ANY)
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
        parsed = parse(raw, rules=self._rules)
        return parsed, memory_size((raw, parsed))
