"""Windows of usage, their points, and the buckets that a window is made of: pure functions.

Source: spec, "Billing and usage"; client contract, section 4: exactly window / interval points,
aligned in UTC, the last one holds now.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from cloister_api.usage.levels import DAY, HOUR, LEVELS

__all__ = ["WINDOWS", "Span", "Window", "cover", "duration_text", "span_of"]

MINUTE = 60


@dataclass(frozen=True, slots=True)
class Window:
    """A window that can be asked for."""

    seconds: int
    """Its length."""
    interval: int
    """Length of one point, in seconds."""

    @property
    def level(self) -> int:
        """Size of the buckets that its points are added up from."""
        fitting = [one.seconds for one in LEVELS if self.interval % one.seconds == 0]
        return max(fitting)


WINDOWS = {
    "5m": Window(5 * MINUTE, 5),
    "15m": Window(15 * MINUTE, 15),
    "30m": Window(30 * MINUTE, 30),
    "1h": Window(HOUR, MINUTE),
    "24h": Window(DAY, 15 * MINUTE),
    "7d": Window(7 * DAY, 2 * HOUR),
    "30d": Window(30 * DAY, 8 * HOUR),
    "60d": Window(60 * DAY, DAY),
    "90d": Window(90 * DAY, DAY),
}
"""The windows by the values of ``time``."""


@dataclass(frozen=True, slots=True)
class Span:
    """A window at a moment."""

    begin: int
    """Unix second that its first point begins with."""
    end: int
    """Unix second after its last point."""
    interval: int
    """Length of a point in seconds."""

    @property
    def points(self) -> range:
        """Unix seconds that its points begin with."""
        return range(self.begin, self.end, self.interval)


def span_of(window: Window, now: datetime) -> Span:
    """Answer a window that ends with the point that holds now.

    Parameters
    ----------
    window
        The window.
    now
        Present time in UTC.
    """
    end = (int(now.timestamp()) // window.interval + 1) * window.interval
    return Span(end - window.seconds, end, window.interval)


def cover(begin: int, end: int, sizes: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Answer the fewest buckets that make a span up: size, begin and end of each run.

    Parameters
    ----------
    begin
        Unix second that the span begins with, a multiple of the least size.
    end
        Unix second after it, a multiple of the least size.
    sizes
        Sizes of buckets, the largest first.
    """
    if begin >= end or not sizes:
        return
    size, smaller = sizes[0], sizes[1:]
    first, last = -(-begin // size) * size, end // size * size
    if first >= last:
        yield from cover(begin, end, smaller)
        return
    yield from cover(begin, first, smaller)
    yield (size, first, last)
    yield from cover(last, end, smaller)


def duration_text(seconds: int) -> str:
    """Answer a length of time as Go prints it, such as ``15m0s``."""
    hours, rest = divmod(seconds, HOUR)
    minutes, left = divmod(rest, MINUTE)
    if hours:
        return f"{hours}h{minutes}m{left}s"
    return f"{minutes}m{left}s" if minutes else f"{left}s"
