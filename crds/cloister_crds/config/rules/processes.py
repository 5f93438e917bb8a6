"""The process of a container: command, stop, restart, health check."""

import re
from datetime import timedelta
from typing import Final

from cloister_crds.config.limits import MAX_LIST, MAX_TEST
from cloister_crds.config.model import Healthcheck, Restart
from cloister_crds.config.rules.mounts import is_clean_path
from cloister_crds.config.syntax.reading import Field, Spot, Table, read_section, show
from cloister_crds.config.syntax.scalars import (
    DURATION_PATTERN,
    ScalarKind,
    read_duration,
    read_signal,
)

__all__ = [
    "HEALTHCHECK",
    "RESTART_PATTERN",
    "read_healthcheck",
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


DEFAULT_RETRIES: Final = 3
MILLISECOND: Final = timedelta(milliseconds=1)
DURATION_SCHEMA: Final = {"type": "string", "pattern": f"^({DURATION_PATTERN})$"}


def _read_test(spot: Spot) -> tuple[str, ...] | None:
    words = spot.texts(MAX_TEST, 'a list such as ["CMD", "curl", "-sf", "http://localhost/"]')
    if words is None:
        return None
    match words:
        case ("NONE",) | ("CMD-SHELL", _) | ("CMD", _, *_):
            return words
        case ("NONE", *_):
            spot.error("InvalidHealthcheck", "NONE means no check: write nothing after it")
        case ("CMD",):
            spot.error("InvalidHealthcheck", "CMD has no command: write its words after it")
        case ("CMD-SHELL", *_):
            message = "CMD-SHELL takes exactly one command line: write it as one text"
            spot.error("InvalidHealthcheck", message)
        case (first, *_):
            message = f"begins with {show(first)}: begin with CMD, CMD-SHELL or NONE"
            spot.error("InvalidHealthcheck", message)
        case _:
            spot.error("InvalidHealthcheck", "is empty: begin with CMD, CMD-SHELL or NONE")
    return None


def _read_duration(spot: Spot) -> timedelta | None:
    number = spot.kind in {ScalarKind.INTEGER, ScalarKind.FLOAT}
    text = spot.raw if number else spot.text("a duration such as 30s")
    if text is None:
        return None
    duration = read_duration(text)
    if duration is None:
        message = "write numbers with units, such as 30s, 1h30m or 500ms"
        spot.error("InvalidDuration", f"{show(text)} is not a duration: {message}")
    return duration


def _read_positive(spot: Spot) -> timedelta | None:
    duration = _read_duration(spot)
    if duration is not None and duration < MILLISECOND:
        spot.error("OutOfRange", "is less than a millisecond: write at least 1ms")
        return None
    return duration


def _read_retries(spot: Spot) -> int | None:
    retries = spot.integer(0, 2**31 - 1)
    return DEFAULT_RETRIES if retries == 0 else retries


HEALTHCHECK: Final = Table(
    noun="a healthcheck",
    fields=(
        Field(
            "test",
            _read_test,
            {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": MAX_TEST,
                "prefixItems": [{"enum": ["CMD", "CMD-SHELL", "NONE"]}],
            },
            "CMD and a command, CMD-SHELL and a command line, or NONE; exit code 0 passes.",
            required=True,
            missing='write a list such as ["CMD", "curl", "-sf", "http://localhost:8080/"]',
        ),
        Field("interval", _read_positive, DURATION_SCHEMA, "Time between checks; 30s."),
        Field("timeout", _read_positive, DURATION_SCHEMA, "Time after which one fails; 30s."),
        Field(
            "retries",
            _read_retries,
            {"type": "integer", "minimum": 0},
            "Failures in a row that make it unhealthy; 3, and 0 means 3.",
        ),
        Field(
            "start_period",
            _read_duration,
            {"anyOf": [DURATION_SCHEMA, {"const": 0}]},
            "Time after the start in which failures do not count; 0s.",
        ),
    ),
    refused={
        "start_interval": (
            "NotSupported",
            "start_interval is not supported here: health is checked every 5 seconds while booting",
        ),
        "disable": ("NotSupported", 'disable is not supported here: write test: ["NONE"]'),
    },
)
"""The keys of a health check."""


def read_healthcheck(spot: Spot) -> Healthcheck | None:
    """Read a health check."""
    section = read_section(spot, HEALTHCHECK)
    if section is None or not section.get("test"):
        return None
    return Healthcheck(**section.values)
