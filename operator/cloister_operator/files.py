"""Parsed configuration files by their digest, so that one file is parsed once for all its uses."""

import asyncio
from collections import OrderedDict

from cloister_crds.config import ParsedConfig, Rules, parse

__all__ = ["Files"]

_KEPT = 1024
"""Files that are kept; the ones unused for longest go first."""


class Files:
    """A bounded cache of parsed files."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._parsed: OrderedDict[bytes, ParsedConfig] = OrderedDict()

    async def parse(self, raw: bytes) -> ParsedConfig:
        """Parse a file, outside of the event loop.

        Parameters
        ----------
        raw
            The file's bytes.
        """
        parsed = self._parsed.get(raw)
        if parsed is None:
            parsed = await asyncio.to_thread(parse, raw, rules=self._rules)
            self._parsed[raw] = parsed
        self._parsed.move_to_end(raw)
        while len(self._parsed) > _KEPT:
            self._parsed.popitem(last=False)
        return parsed
