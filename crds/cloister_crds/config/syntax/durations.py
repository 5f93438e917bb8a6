"""Lengths of time as Go writes them: ``90m``, ``1h30m``, ``500ms`` (Go, ``time.ParseDuration``)."""

import re
from datetime import timedelta
from decimal import Decimal
from typing import Final

__all__ = ["DURATION_PATTERN", "read_duration"]

PART: Final = r"([0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(ns|us|µs|μs|ms|s|m|h)"
DURATION_PATTERN: Final = rf"0|({PART}){{1,32}}"
"""What a duration looks like; a sign is not allowed."""

DURATION = re.compile(DURATION_PATTERN)
PARTS = re.compile(PART)
NANOSECONDS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
MOST: Final = 2**63 - 1
"""Most nanoseconds that Go holds, some 292 years."""


def read_duration(text: str) -> timedelta | None:
    """Read a duration.

    Parameters
    ----------
    text
        Numbers, each with its unit, or ``0``.

    Returns
    -------
    timedelta | None
        The sum, rounded down to microseconds; None when it cannot be read or is too long for Go.
    """
    if not DURATION.fullmatch(text):
        return None
    parts = PARTS.findall(text)
    total = sum(Decimal(number) * NANOSECONDS[unit] for number, unit in parts)
    return timedelta(microseconds=int(total) // 1000) if total <= MOST else None
