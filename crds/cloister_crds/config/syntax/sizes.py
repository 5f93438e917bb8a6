"""Amounts of memory as Docker writes them: ``512m``, ``1.5g``, ``64KiB``, ``1073741824``."""

import re
from decimal import Decimal
from typing import Final

__all__ = ["SIZE_PATTERN", "read_size"]

SIZE_PATTERN: Final = r"[0-9]{1,18}(\.[0-9]{1,9})? ?([bB]|[kKmMgGtTpP]([iI]?[bB])?)?"
"""What a size looks like; units are powers of 1024 with and without ``i``."""

SIZE = re.compile(SIZE_PATTERN)
POWERS: Final = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
MOST: Final = 2**63 - 1


def read_size(text: str) -> int | None:
    """Read a size.

    Parameters
    ----------
    text
        A number and a unit; bytes without a unit.

    Returns
    -------
    int | None
        Bytes, rounded down; None when it cannot be read or does not fit 63 bits.
    """
    if not SIZE.fullmatch(text):
        return None
    number = text.rstrip("bBkKmMgGtTpPiI ")
    unit = text[len(number) :].strip().lower()[:1]
    amount = int(Decimal(number) * 1024 ** POWERS[unit])
    return amount if amount <= MOST else None
