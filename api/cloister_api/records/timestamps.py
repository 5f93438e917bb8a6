"""Times as the API writes them."""

from datetime import datetime

from cloister_clients.clock import utc_text
from cloister_crds.kinds.meta import ObjectMeta

__all__ = ["created_at", "timestamp"]


def timestamp(time: datetime) -> str:
    """Return a time as RFC 3339 in UTC, in whole seconds."""
    return utc_text(time, "seconds")


def created_at(meta: ObjectMeta) -> str:
    """Return when an object was created, which the API server has written."""
    assert meta.creation_timestamp is not None
    return timestamp(meta.creation_timestamp)
