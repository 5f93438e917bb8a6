"""How long to wait: until a time, and before what failed is tried again."""

from datetime import datetime, timedelta

from cloister_crds.backoff import Backoff

__all__ = ["LONGEST_BACKOFF", "SHORTEST_BACKOFF", "backoff_delay", "due"]

SHORTEST_BACKOFF = timedelta(seconds=10)
"""Wait before the first repetition of what failed for a transient reason."""
LONGEST_BACKOFF = timedelta(minutes=5)
"""Longest wait between two repetitions."""
_BACKOFF = Backoff(SHORTEST_BACKOFF.total_seconds(), LONGEST_BACKOFF.total_seconds())


def backoff_delay(failures: int) -> timedelta:
    """Return how long to wait after some failures in a row.

    Parameters
    ----------
    failures
        How many there were, from 1; 0 means none, and no wait.

    Returns
    -------
    timedelta
        10 s after the first, twice as long after each further one, at most 5 min.
    """
    if failures <= 0:
        return timedelta(0)
    return timedelta(seconds=_BACKOFF.delay(failures))


def due(at: datetime, now: datetime) -> timedelta | None:
    """Return how long it is until a time.

    Returns
    -------
    timedelta | None
        None when the time has come.
    """
    return at - now if at > now else None
