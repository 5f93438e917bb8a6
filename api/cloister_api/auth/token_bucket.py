"""How often one key may be used: a bucket of credit for each key, shared out among replicas."""

from dataclasses import dataclass
from typing import Protocol

__all__ = ["Bucketed", "RateLimit", "TokenBucket", "consume"]


class Bucketed(Protocol):
    """What has credit."""

    credit: float
    """Uses that may still be made at once; negative = there was none yet."""
    credited_at: float
    """Monotonic time that `credit` belongs to."""


@dataclass(slots=True)
class TokenBucket:
    """Credit of something that is held elsewhere."""

    credit: float = -1.0
    """Uses that may still be made at once; negative = there was none yet."""
    credited_at: float = 0.0
    """Monotonic time that `credit` belongs to."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A rate."""

    per_second: float
    """Uses per second that credit grows by."""
    burst: float
    """Most credit that is kept."""

    def shared(self, replicas: int) -> "RateLimit":
        """Return the part of one replica: requests are spread evenly in front of them.

        Parameters
        ----------
        replicas
            How many facades are ready; this one is among them.
        """
        count = max(1, replicas)
        return RateLimit(self.per_second / count, max(1.0, self.burst / count))


def consume(key: Bucketed, rate: RateLimit, now: float) -> float:
    """Take one use from a key's credit.

    Parameters
    ----------
    key
        The key; its credit is changed.
    rate
        The rate of this replica.
    now
        Monotonic time in seconds.

    Returns
    -------
    float
        0 when there was credit, else the seconds until there is.
    """
    credit = rate.burst
    if key.credit >= 0:
        credit = min(rate.burst, key.credit + (now - key.credited_at) * rate.per_second)
    key.credited_at = now
    if credit < 1:
        key.credit = credit
        return (1 - credit) / rate.per_second
    key.credit = credit - 1
    return 0.0
