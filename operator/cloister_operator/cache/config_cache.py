"""Cache of parsed configuration files, so that one file is parsed once for all its uses."""

import asyncio
from dataclasses import replace

from cachetools import LRUCache

from cloister_crds.config import ParsedConfig, Rules, parse

__all__ = ["ConfigCache"]

_ANY = range(2**31)
_KEPT = 1024
"""Files that are cached at most; the least recently used are dropped first."""


class ConfigCache:
    """A bounded cache of parsed files of Enclaves.

    Whether an organization may have as much was decided when the Enclave was created, by the tiers
    of its Host: here every amount is valid.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = replace(rules, cpu_tiers=_ANY, memory_tiers=_ANY, gpu_counts=_ANY)
        self._parsed: LRUCache[bytes, ParsedConfig] = LRUCache(_KEPT)

    async def parse(self, raw: bytes) -> ParsedConfig:
        """Parse the bytes of a file, outside the event loop."""
        parsed = self._parsed.get(raw)
        if parsed is None:
            # A large file takes milliseconds, which would block the event loop.
            parsed = await asyncio.to_thread(parse, raw, rules=self._rules)
            self._parsed[raw] = parsed
        return parsed
