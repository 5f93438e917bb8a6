"""Sizes of buckets and how long they are kept; sums of events by bucket. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = [
    "DAY",
    "EVER",
    "HOUR",
    "LEVELS",
    "CollectedSums",
    "Level",
    "Place",
    "Sums",
    "add",
]

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
    """Seconds that buckets are kept, longer than any window needs; None = for ever."""
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
        owner
            Key and organization.
        model
            Model.
        at
            When it happened, in microseconds.
        received
            When it was received, in microseconds.
        values
            What it adds.
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
