"""Signals of Linux by name and number (signal(7), x86)."""

import re
from typing import Final

__all__ = ["SIGNAL_PATTERN", "read_signal"]

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
