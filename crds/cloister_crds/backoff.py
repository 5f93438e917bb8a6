"""Exponential backoff: how long to wait before what failed is repeated, and until a time."""

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

__all__ = ["LONGEST_BACKOFF", "SHORTEST_BACKOFF", "Backoff", "backoff_delay", "due"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays after failures in a row, doubled each time."""

    first: float
    """Seconds after the first failure."""
    longest: float
    """Seconds at most, before jitter."""
    jitter: tuple[float, float] = (1.0, 1.0)
    """Least and largest random factor of a delay."""

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row, from 1, without jitter."""
        # Beyond 2**1000 a float overflows; after as many failures the delay has reached the cap
        # long ago.
        return min(self.first * 2.0 ** min(failures - 1, 1000), self.longest)

    def jittered(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row, from 1, with jitter."""
        return self.delay(failures) * random.uniform(*self.jitter)


SHORTEST_BACKOFF = timedelta(seconds=10)
"""Backoff before the first retry of what failed for a transient reason."""
LONGEST_BACKOFF = timedelta(minutes=5)
"""Longest backoff between two retries."""
_BACKOFF = Backoff(SHORTEST_BACKOFF.total_seconds(), LONGEST_BACKOFF.total_seconds())


def backoff_delay(failures: int) -> timedelta:
    """Return how long to wait after a number of failures in a row; 0 means none, and no wait.

    Returns
    -------
    timedelta
        10 s after the first, twice as long after each further one, at most 5 min.
    """
    if failures <= 0:
        return timedelta(0)
    return timedelta(seconds=_BACKOFF.delay(failures))


def due(at: datetime, now: datetime) -> timedelta | None:
    """Return the time that is left until `at`; None when it is past."""
    return at - now if at > now else None
