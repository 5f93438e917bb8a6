"""Scalars: unquoted YAML values, durations (Go), sizes (Docker), signals (Linux)."""

import re
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final

from cloister_crds.config.syntax.document import Scalar

__all__ = [
    "DURATION_PATTERN",
    "SIGNAL_PATTERN",
    "SIZE_PATTERN",
    "ScalarKind",
    "kind_of",
    "read_duration",
    "read_signal",
    "read_size",
]

NULL = re.compile(r"|~|null|Null|NULL")
BOOL = re.compile(r"true|false")
INTEGER = re.compile(r"0|-?[1-9][0-9]*")
FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)\.(?:[0-9]*[1-9]|0)")
"""Decimal fractions as every program prints them back."""

SURPRISES = re.compile(
    r"""
      (?:[Tt]rue|TRUE|[Ff]alse|FALSE)              # truth in other letters
    | (?:[Yy]es|YES|[Nn]o|NO|[Oo]n|ON|[Oo]ff|OFF)  # truth in 1.1 only
    | [-+]?0[0-9_]+                                # 1.1: octal
    | [-+]?0[xX][0-9a-fA-F_]+ | 0o[0-7]+ | [-+]?0b[01_]+
    | [-+]?[0-9][0-9_]*                            # signs and underscores
    | [-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?  # 1.1: base 60
    | [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*
    | [-+]?(?:\.[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?
    | [-+]?\.(?:inf|Inf|INF) | \.(?:nan|NaN|NAN)
    """,
    re.VERBOSE,
)
"""Words that some reader in use takes for a number or a truth value, or prints back differently.

The single letters y and n of YAML 1.1 are left out: no reader in use takes them for truth."""


class ScalarKind(StrEnum):
    """What a scalar is."""

    TEXT = "text"
    NULL = "no value"
    BOOL = "true or false"
    INTEGER = "an integer"
    FLOAT = "a number"
    AMBIGUOUS = "an ambiguous word"


def kind_of(scalar: Scalar) -> ScalarKind:
    """Return what a scalar is.

    Parameters
    ----------
    scalar
        Any scalar; one in quotes or of a block is text always.

    Returns
    -------
    ScalarKind
        `ScalarKind.AMBIGUOUS` when readers of YAML disagree, or when its value printed back would
        not be its text, so that a string made of it may differ (``1.10``, ``0x1F``, ``True``).
    """
    text = scalar.text
    if not scalar.plain:
        return ScalarKind.TEXT
    for kind, pattern in (
        (ScalarKind.NULL, NULL),
        (ScalarKind.BOOL, BOOL),
        (ScalarKind.INTEGER, INTEGER),
        (ScalarKind.FLOAT, FLOAT),
        (ScalarKind.AMBIGUOUS, SURPRISES),
    ):
        if pattern.fullmatch(text):
            return kind
    return ScalarKind.TEXT


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


SIZE_PATTERN: Final = r"[0-9]{1,18}(\.[0-9]{1,9})? ?([bB]|[kKmMgGtTpP]([iI]?[bB])?)?"
"""What a size looks like; units are powers of 1024 with and without ``i``."""

SIZE = re.compile(SIZE_PATTERN)
POWERS: Final = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


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


NAMES: Final = [
    "HUP",
    "INT",
    "QUIT",
    "ILL",
    "TRAP",
    "ABRT",
    "BUS",
    "FPE",
    "KILL",
    "USR1",
    "SEGV",
    "USR2",
    "PIPE",
    "ALRM",
    "TERM",
    "STKFLT",
    "CHLD",
    "CONT",
    "STOP",
    "TSTP",
    "TTIN",
    "TTOU",
    "URG",
    "XCPU",
    "XFSZ",
    "VTALRM",
    "PROF",
    "WINCH",
    "IO",
    "PWR",
    "SYS",
]
"""Names in the order of their numbers, from 1."""
FIRST_REALTIME: Final = 34
LAST_REALTIME: Final = 64

REALTIME: Final = r"RTMIN(?:\+([1-9]|[12][0-9]|30))?|RTMAX(?:-([1-9]|[12][0-9]|30))?"
SIGNAL_PATTERN: Final = rf"[0-9]{{1,2}}|(SIG)?({'|'.join(NAMES)}|IOT|CLD|POLL|{REALTIME})"
"""What a signal looks like."""

ALIASES: Final = {"IOT": "ABRT", "CLD": "CHLD", "POLL": "IO"}


def read_signal(text: str) -> str | None:
    """Read a signal.

    Parameters
    ----------
    text
        A name with or without ``SIG``, or a number.

    Returns
    -------
    str | None
        Its name with ``SIG``; None when there is no such signal.
    """
    if text.isascii() and text.isdigit() and len(text) <= len("64"):
        return _by_number(int(text))
    name = text.removeprefix("SIG")
    name = ALIASES.get(name, name)
    if name in NAMES:
        return "SIG" + name
    found = re.fullmatch(REALTIME, name)
    if found is None:
        return None
    if name.startswith("RTMIN"):
        return _by_number(FIRST_REALTIME + int(found[1] or 0))
    return _by_number(LAST_REALTIME - int(found[2] or 0))


def _by_number(number: int) -> str | None:
    if 1 <= number <= len(NAMES):
        return "SIG" + NAMES[number - 1]
    if number == FIRST_REALTIME:
        return "SIGRTMIN"
    if FIRST_REALTIME < number <= LAST_REALTIME:
        return f"SIGRTMIN+{number - FIRST_REALTIME}"
    return None
