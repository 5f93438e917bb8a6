"""How long buckets are and how long they are kept; sums of events by bucket, as pure functions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = [
    "DAY",
    "EVER",
    "HOUR",
    "LEVELS",
    "Collected",
    "Level",
    "Place",
    "Sums",
    "add",
    "counted_from",
]

HOUR = 3_600
DAY = 86_400
EVER = 2_000_000_000
"""A bucket that holds everything until the year 2033, and the next one what comes then."""


@dataclass(frozen=True, slots=True)
class Level:
    """A size of buckets."""

    seconds: int
    """Length of a bucket."""
    keep: int | None
    """Seconds that buckets are kept, more than any window needs them; None = for ever."""


LEVELS = (
    Level(5, 2 * HOUR),
    Level(60, 6 * HOUR),
    Level(900, 3 * DAY),
    Level(HOUR, 40 * DAY),
    Level(DAY, None),
    Level(EVER, None),
)
"""All sizes. Windows up to 30 minutes read the first, one hour the second, a day the third, weeks
and a month the fourth, longer ones the fifth, all
time the last."""

Sums = list[int]
"""Input, output and cached input tokens, requests, nano-dollars."""
Place = tuple[int, int, int, int]
"""Organization, bucket, key, model; the bucket is the Unix second that it begins with."""


def counted_from(level: Level, received_us: int) -> int:
    """Answer the earliest time in microseconds that counts at a level.

    A late event that no window of the level can show any more is not added to it: its bucket may
    have been deleted. This depends on the event alone, so that a check can repeat it.

    Parameters
    ----------
    level
        The level.
    received_us
        When the event was received.
    """
    if level.keep is None:
        return -(2**62)
    return received_us - level.keep * 1_000_000


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


class Collected:
    """Sums of events: each is added at the finest level that it counts at, and folded upwards."""

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
        for level, sums in zip(LEVELS, self._levels, strict=True):
            if level.keep is None or at >= received - level.keep * 1_000_000:
                begin = at // 1_000_000 // level.seconds * level.seconds
                add(sums, (owner[1], begin, owner[0], model), values)
                return

    def folded(self) -> Iterator[tuple[Level, dict[Place, Sums]]]:
        """Answer the sums of each level, the finest first; the last one has every event."""
        for number, level in enumerate(LEVELS):
            sums = self._levels[number]
            if number:
                for (organization, begin, key, model), values in self._levels[number - 1].items():
                    start = begin // level.seconds * level.seconds
                    add(sums, (organization, start, key, model), values)
            yield level, sums
