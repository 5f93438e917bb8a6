"""Windows of usage, their points, and the buckets that a window is made of. Pure.

Source: spec 10.5, 27.4: exactly window / interval points,
aligned in UTC; the last one contains the present.
"""

from dataclasses import dataclass
from datetime import datetime
from math import inf, sqrt

from cloister_api.usage.levels import DAY, EVER, HOUR, LEVELS, Level

__all__ = ["WINDOWS", "BucketRun", "Span", "Window", "cover", "duration_text", "span_of"]

MINUTE = 60
KEY_LEVELS = tuple(level for level in LEVELS if level.by_key and level.seconds != EVER)
SKEW = 10 * MINUTE
"""How far apart the clocks of readers, reporters and the pruning facade may be, in seconds."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window that can be requested."""

    seconds: int
    """Its length."""
    interval: int
    """Length of one point, in seconds."""

    @property
    def level(self) -> int:
        """Size of the buckets that its points are added up from."""
        fitting = [one.seconds for one in LEVELS if one.points and not self.interval % one.seconds]
        return max(fitting)

    @property
    def key_level(self) -> int:
        """Size of the buckets by key that its points are added up from."""
        return max(one.seconds for one in KEY_LEVELS if not self.interval % one.seconds)


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
    """Return a window that ends with the point that contains the present."""
    end = (int(now.timestamp()) // window.interval + 1) * window.interval
    return Span(end - window.seconds, end, window.interval)


@dataclass(frozen=True, slots=True)
class BucketRun:
    """Consecutive buckets of one size, to be added or subtracted."""

    size: int
    """Size of the buckets in seconds."""
    begin: int
    """Unix second that the first one begins with."""
    end: int
    """Unix second after the last one."""
    sign: int
    """1 = they are added, -1 = they are subtracted."""

    @property
    def weight(self) -> float:
        """What it costs to read: a bucket has fewer sums than the shorter ones within it."""
        return (self.end - self.begin) / self.size * sqrt(self.size)


def cover(begin: int, end: int, levels: tuple[Level, ...] = KEY_LEVELS) -> list[BucketRun]:
    """Return the buckets by key that make up a span which ends with the present.

    The inside of a long span is read in long buckets. At its begin either shorter ones are added,
    or a longer one reaches back and its excess is subtracted. At its end the longer one is always
    used: its excess is in the future, where there is next to nothing.

    Parameters
    ----------
    begin
        Unix second that the span begins with, a multiple of the least size.
    end
        Unix second after it, a multiple of the least size, the present or soon after it.
    levels
        Sizes of buckets, the smallest first; each is a multiple of the one before.
    """
    return _covered(begin, end, end, levels)[1]


def _covered(
    begin: int, end: int, present: int, levels: tuple[Level, ...]
) -> tuple[float, list[BucketRun]]:
    """Return the least weight and its runs."""
    level, *longer = levels
    size, kept = level.seconds, -inf
    if level.keep is not None:
        kept = present - level.keep + SKEW
    if begin >= end:
        return 0.0, []
    plain = BucketRun(size, begin, end, 1)
    best = (plain.weight, [plain]) if begin >= kept else (inf, [])
    if not longer:
        return best
    upper = longer[0].seconds
    last = -(-end // upper) * upper
    ahead = [BucketRun(size, end, last, -1)] if end < last else []
    for first in (begin // upper * upper, -(-begin // upper) * upper):
        edge = BucketRun(size, min(begin, first), max(begin, first), 1 if first > begin else -1)
        if first > last or (begin != first and edge.begin < kept):
            continue
        inner, runs = _covered(first, last, present, tuple(longer))
        if inner + edge.weight < best[0]:
            edges = [edge] if begin != first else []
            best = (inner + edge.weight, [*edges, *runs, *ahead])
    return best


def duration_text(seconds: int) -> str:
    """Return a length of time as Go prints it, such as ``15m0s``."""
    hours, rest = divmod(seconds, HOUR)
    minutes, left = divmod(rest, MINUTE)
    if hours:
        return f"{hours}h{minutes}m{left}s"
    return f"{minutes}m{left}s" if minutes else f"{left}s"
