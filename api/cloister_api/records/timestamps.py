"""Times as the API writes them."""

from datetime import datetime

from cloister_clients.clock import utc_text
from cloister_crds.kinds.meta import ObjectMeta

__all__ = ["created_at", "moment_text", "optional_timestamp", "timestamp"]


def timestamp(time: datetime) -> str:
    """Return a time as RFC 3339 in UTC, in whole seconds."""
    return utc_text(time, "seconds")


def optional_timestamp(time: datetime | None) -> str | None:
    """Return a time as `timestamp` does; None stays None."""
    return None if time is None else timestamp(time)


def created_at(meta: ObjectMeta) -> str:
    """Return when an object was created, which the API server has written."""
    assert meta.creation_timestamp is not None
    return timestamp(meta.creation_timestamp)


def moment_text(time: datetime | None) -> str | None:
    """Return a time as the API writes it; None stays None."""
    return None if time is None else utc_text(time)
