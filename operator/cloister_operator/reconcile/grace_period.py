"""The grace period of objects that may yet get an owner: what is created in steps needs it."""

from datetime import datetime, timedelta

__all__ = ["wait_for_age"]


def wait_for_age(created: datetime | None, seconds: float, now: datetime) -> timedelta | None:
    """Return the time until an object has reached an age.

    Parameters
    ----------
    created
        When it was created, in UTC; None = not known, and taken as just now.
    seconds
        Age to reach.
    now
        The present, in UTC.

    Returns
    -------
    timedelta | None
        None when it is old enough.
    """
    left = timedelta(seconds=seconds) - (now - (created or now))
    return left if left > timedelta(0) else None
