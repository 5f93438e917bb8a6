"""Windows of usage, and size, retention and boundaries of their buckets. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf, sqrt

HOUR = 3_600
DAY = 86_400
EVER = 2_000_000_000
"""A bucket that holds everything until the year 2033; the next one holds what is later."""


@dataclass(frozen=True, slots=True)
class Level:
    """A size of buckets."""

    seconds: int
    """Length of a bucket."""
    keep: int | None
    """Seconds that buckets are kept, longer than any window needs; None means forever."""
    by_key: bool = True
    """Whether there are sums by key."""
    points: bool = True
    """Whether there are sums over all keys, for time series."""


LEVELS = (
    Level(5, 2 * HOUR),
    Level(60, 6 * HOUR, by_key=False),
    Level(900, 3 * DAY),
    Level(HOUR, 40 * DAY),
    Level(DAY, None),
    Level(8 * DAY, None, points=False),
    Level(EVER, None, points=False),
)
"""All sizes. Time series of up to 30 minutes read the first, one hour the second, a day the third,
weeks and a month the fourth, longer ones the fifth. Sums by key hardly shrink from 5 s to a minute,
so that there are none by the minute; those of 8 days are for the inside of long windows."""

Sums = list[int]
"""Input, output and cached input tokens, requests, nano-dollars."""
Place = tuple[int, int, int, int]
"""Organization, bucket, key, model; the bucket is the Unix second that it begins with."""


def add(sums: dict[Place, Sums], place: Place, values: Sequence[int]) -> None:
    """Add values to the sums of a place."""
    present = sums.get(place)
    if present is None:
        sums[place] = list(values)
        return
    present[0] += values[0]
    present[1] += values[1]
    present[2] += values[2]
    present[3] += values[3]
    present[4] += values[4]


class CollectedSums:
    """Sums of events: each is added at its finest level, and rolled up into the longer ones.

    A late event that no window of a level can show any more is not added to it: its bucket may have
    been deleted. This depends only on the event, so that a check can repeat it.
    """

    def __init__(self) -> None:
        self._levels: tuple[dict[Place, Sums], ...] = tuple({} for _ in LEVELS)

    def add(
        self, owner: tuple[int, int], model: int, at: int, received: int, values: Sequence[int]
    ) -> None:
        """Add an event.

        Parameters
        ----------
        at
            When it happened, in microseconds.
        received
            When it was received, in microseconds.
        """
        age = received - at
        for limit, width, seconds, sums in zip(KEPT_US, WIDTHS_US, SECONDS, self._levels):  # noqa: B905 - one each
            if age <= limit:
                add(sums, (owner[1], at // width * seconds, owner[0], model), values)
                return

    def rolled_up(self) -> Iterator[tuple[Level, dict[Place, Sums], dict[Place, Sums]]]:
        """Yield the sums of each level by key, and over all keys (key 0), the finest first.

        The last one by key has every event. Call it once.
        """
        keys: dict[Place, Sums] = {}
        points: dict[Place, Sums] = {}
        for level, own in zip(LEVELS, self._levels, strict=True):
            keys, points = rolled_up_to(keys, level.seconds), rolled_up_to(points, level.seconds)
            # In order, so that the sums of all levels are nearly sorted when they are written.
            for place, values in sorted(own.items()):
                organization, begin, _, model = place
                add(keys, place, values)
                add(points, (organization, begin, 0, model), values)
            yield level, keys, points


def rolled_up_to(sums: dict[Place, Sums], seconds: int) -> dict[Place, Sums]:
    """Return sums rolled up into longer buckets."""
    found: dict[Place, Sums] = {}
    for (organization, begin, key, model), values in sums.items():
        add(found, (organization, begin - begin % seconds, key, model), values)
    return found


KEPT_US = tuple(2**62 if one.keep is None else one.keep * 1_000_000 for one in LEVELS)
WIDTHS_US = tuple(one.seconds * 1_000_000 for one in LEVELS)
SECONDS = tuple(one.seconds for one in LEVELS)
"""Flat copies for the loop over events: how old an event may be, the width of buckets."""


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
    """1 = they are added, -1 if they are subtracted."""

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
        Sizes of buckets, the smallest first; each is a multiple of the previous one.
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
