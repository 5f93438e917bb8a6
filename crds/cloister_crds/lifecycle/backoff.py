"""How long to wait: until a time, and before what failed is tried again."""

from datetime import datetime, timedelta

from cloister_crds.backoff import Backoff

__all__ = ["LONGEST_BACK_OFF", "SHORTEST_BACK_OFF", "back_off", "due"]

SHORTEST_BACK_OFF = timedelta(seconds=10)
"""Wait before the first repetition of what failed for a transient reason."""
LONGEST_BACK_OFF = timedelta(minutes=5)
"""Longest wait between two repetitions."""
_BACKOFF = Backoff(SHORTEST_BACK_OFF.total_seconds(), LONGEST_BACK_OFF.total_seconds())


def back_off(failures: int) -> timedelta:
    """Answer how long to wait after some failures in a row.

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
    """Answer how long it is until a time.

    Parameters
    ----------
    at
        The time.
    now
        The present.

    Returns
    -------
    timedelta | None
        None when the time has come.
    """
    return at - now if at > now else None
