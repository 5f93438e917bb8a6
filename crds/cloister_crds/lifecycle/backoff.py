"""Backoff of the lifecycle: how long to wait before what failed is retried, and until a time."""

from datetime import datetime, timedelta

from cloister_crds.backoff import Backoff

__all__ = ["LONGEST_BACKOFF", "SHORTEST_BACKOFF", "backoff_delay", "due"]

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
