"""The process of a container: its words, its end, its restart.

Source: spec 42.3 to 42.5, 42.23, 42.25 to 42.27; Docker for what they mean.
"""

import re
from typing import Final

from cloister_crds.config.limits import MAX_LIST
from cloister_crds.config.model import Restart
from cloister_crds.config.rules.mounts import is_clean_path
from cloister_crds.config.syntax.reading import Spot, show
from cloister_crds.config.syntax.scalars import ScalarKind
from cloister_crds.config.syntax.signals import read_signal

__all__ = [
    "RESTART_PATTERN",
    "read_pids_limit",
    "read_restart",
    "read_stop_signal",
    "read_stop_timeout",
    "read_words",
    "read_working_dir",
]

RESTARTS: Final = tuple(str(word) for word in Restart)
RESTART_PATTERN: Final = rf"{'|'.join(RESTARTS)}|on-failure:[0-9]{{1,9}}"
"""What a restart policy looks like."""
MAX_SECONDS: Final = 7 * 24 * 3600
"""Longest time to stop, in seconds."""


def read_words(spot: Spot) -> tuple[str, ...] | None:
    """Read a command or an entrypoint."""
    return spot.texts(MAX_LIST, 'a list of words such as ["serve", "--port", "8080"]')


def read_working_dir(spot: Spot) -> str | None:
    """Read the directory in which the process begins."""
    text = spot.text("an absolute path such as /app")
    if text is not None and not is_clean_path(text if text == "/" else text.removesuffix("/")):
        message = "write an absolute path without `.`, `..` or `//`"
        spot.error("InvalidPath", f"{show(text)} is not a clean path: {message}")
        return None
    return text


def read_pids_limit(spot: Spot) -> int | None:
    """Read the most processes at a time."""
    if spot.kind is ScalarKind.INTEGER and spot.raw == "0":
        spot.error("OutOfRange", "is 0: write at least 1, or -1 for no limit")
        return None
    return spot.integer(-1, 2**22)


def read_restart(spot: Spot) -> tuple[Restart, int | None] | None:
    """Read the restart policy with its limit."""
    found = re.fullmatch(r"on-failure:([0-9]{1,9})", spot.raw)
    if found:
        return Restart.ON_FAILURE, int(found[1]) or None
    word = spot.word(RESTARTS)
    return None if word is None else (Restart(word), None)


def read_stop_signal(spot: Spot) -> str | None:
    """Read the signal that asks the process to terminate."""
    text = spot.raw if spot.kind is ScalarKind.INTEGER else spot.text("a signal such as SIGTERM")
    if text is None:
        return None
    signal = read_signal(text)
    if signal is None:
        message = "write a name such as SIGTERM or SIGRTMIN+3, or a number from 1 to 64"
        spot.error("InvalidSignal", f"{show(text)} is not a signal: {message}")
    return signal


def read_stop_timeout(spot: Spot) -> int | None:
    """Read the seconds from the signal to the kill."""
    return spot.integer(0, MAX_SECONDS)
