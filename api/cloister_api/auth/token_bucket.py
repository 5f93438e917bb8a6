"""Rate limits as token buckets, one for each key; a limit is divided among the replicas."""

from dataclasses import dataclass
from math import ceil
from typing import Protocol

from cloister_api.errors import ApiError

UNKNOWN_SECONDS = 10.0
"""Seconds whose unknown keys may come in one burst."""


class Bucketed(Protocol):
    """Anything that has a token bucket."""

    tokens: float
    """Uses that may still be made in one burst; negative if the bucket was never used and is
    full."""
    refilled_at: float
    """Monotonic time that `tokens` was computed for."""


@dataclass(slots=True)
class TokenBucket:
    """The bucket of something that is kept elsewhere."""

    tokens: float = -1.0
    """Uses that may still be made in one burst; negative if the bucket was never used and is
    full."""
    refilled_at: float = 0.0
    """Monotonic time that `tokens` was computed for."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A rate and how far it may be exceeded for a moment."""

    per_second: float
    """Tokens that a bucket regains per second."""
    burst: float
    """Capacity of a bucket."""

    def shared(self, replicas: int) -> "RateLimit":
        """Return the part of one replica; the load balancer spreads requests evenly.

        Parameters
        ----------
        replicas
            How many replicas run; this one is among them.
        """
        count = max(1, replicas)
        return RateLimit(self.per_second / count, max(1.0, self.burst / count))


def consume(bucket: Bucketed, rate: RateLimit, now: float) -> float:
    """Take one token from a bucket.

    Parameters
    ----------
    bucket
        The bucket; it is changed.
    now
        Monotonic time in seconds.

    Returns
    -------
    float
        0 when there was a token, else the seconds until there is one.
    """
    tokens = rate.burst
    if bucket.tokens >= 0:
        tokens = min(rate.burst, bucket.tokens + (now - bucket.refilled_at) * rate.per_second)
    bucket.refilled_at = now
    if tokens < 1:
        bucket.tokens = tokens
        return (1 - tokens) / rate.per_second
    bucket.tokens = tokens - 1
    return 0.0


class UnknownKeyLimit:
    """How many keys that nobody here knows are looked up in the ledger.

    It is not the limit of a client, since gateways and enclaves send the keys of many: known keys
    are never limited by it, and beyond it unknown ones are 429 rather than 401.

    Parameters
    ----------
    per_second
        Keys per second, by replica.
    """

    def __init__(self, per_second: float) -> None:
        self._rate = RateLimit(per_second, max(1.0, per_second * UNKNOWN_SECONDS))
        self._bucket = TokenBucket()

    def take(self, now: float) -> None:
        """Count a key that is not in memory.

        Parameters
        ----------
        now
            Monotonic time in seconds.

        Raises
        ------
        ApiError
            429 when there were too many.
        """
        wait = consume(self._bucket, self._rate, now)
        if wait:
            raise ApiError(
                429,
                "RATE_LIMITED",
                "this API key is unknown, and too many unknown ones were sent; check the key, or "
                "try again after Retry-After",
                retry_after=ceil(wait),
            )
