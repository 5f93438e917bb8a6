"""Exponential backoff with a cap and jitter: how long to wait before what failed is repeated."""

import random
from dataclasses import dataclass

__all__ = ["Backoff"]


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
        # Beyond 2**1000 a float overflows; whoever fails as often has reached the cap long ago.
        return min(self.first * 2.0 ** min(failures - 1, 1000), self.longest)

    def jittered(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row, from 1, with jitter."""
        return self.delay(failures) * random.uniform(*self.jitter)
