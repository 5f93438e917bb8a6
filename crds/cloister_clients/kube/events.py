"""Events of a watch, line by line (Kubernetes, "API Concepts": efficient detection of changes).

Read by `cloister_clients.kube.client`; the reflector acts upon it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from cloister_clients.kube.errors import Unavailable, error_from_status

__all__ = ["Object", "WatchEvent", "WatchEventType", "read_event"]

Object = dict[str, Any]
"""An object of the API as JSON data."""


class WatchEventType(StrEnum):
    """Type of an event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch."""

    type: WatchEventType
    """What happened."""
    object: Object
    """The object after it; of a bookmark only its resourceVersion means something."""


def read_event(line: bytes) -> WatchEvent:
    """Read one line of a watch.

    Raises
    ------
    KubeError
        When it is an ERROR event, such as `Gone`.
    Unavailable
        When the line is not an event.
    """
    try:
        body = msgspec.json.decode(line)
        kind, item = body["type"], body["object"]
        if kind == "ERROR":
            raise error_from_status(item)
        return WatchEvent(WatchEventType(kind), item)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise Unavailable(
            0, "BadResponse", "the watch sent something that is not an event"
        ) from error
