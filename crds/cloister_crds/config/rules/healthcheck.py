"""Health checks.

Source: spec 43; Docker's HEALTHCHECK for what the words mean.
"""

from datetime import timedelta
from typing import Final

from cloister_crds.config.limits import MAX_TEST
from cloister_crds.config.model import Healthcheck
from cloister_crds.config.syntax.durations import DURATION_PATTERN, read_duration
from cloister_crds.config.syntax.reading import Field, Spot, Table, read_section, show
from cloister_crds.config.syntax.scalars import ScalarKind

__all__ = ["HEALTHCHECK", "read_healthcheck"]

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
