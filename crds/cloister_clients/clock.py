"""The one place that reads the time.

Decisions take ``now`` as an argument; whoever calls them reads it here. Tests hand in a fake clock.
"""

from collections.abc import Callable
from datetime import UTC, datetime

__all__ = ["Clock", "utc_now", "utc_text"]

Clock = Callable[[], datetime]
"""A function that returns the present time, with zone UTC."""


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)  # noqa: TID251 - this is the place that the ban names


def utc_text(time: datetime, timespec: str = "auto") -> str:
    """Write a time as Kubernetes and the API do: ISO 8601, its zone as the letter Z.

    Parameters
    ----------
    time
        A time with zone UTC.
    timespec
        How exact, as `datetime.isoformat` takes it.
    """
    return time.isoformat(timespec=timespec).replace("+00:00", "Z")
