"""Lists in pieces: ``?limit=`` and ``?cursor=``, with the next piece in the header Link (RFC 8288).

Without both a list is answered whole. A cursor holds the sort key of the last entry that was
answered, so that entries which come or go between two pieces are neither repeated nor make others
be left out.
"""

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar
from urllib.parse import urlencode

import msgspec
from fastapi import Query, Request

from cloister_api.errors import bad_request

__all__ = ["Cursor", "Limit", "piece"]

MOST = 100
"""Entries of a piece."""
Limit = Annotated[
    int | None,
    Query(
        ge=1,
        le=MOST,
        description="Entries at most; left out: all, or with a cursor 100.",
        json_schema_extra={"type": "integer", "minimum": 1, "maximum": MOST, "anyOf": None},
    ),
]
Cursor = Annotated[
    str | None,
    Query(
        description="Where to go on: from the header Link of the piece before.",
        json_schema_extra={"type": "string", "anyOf": None},
    ),
]
Key = tuple[str, ...]
T = TypeVar("T")


def piece(
    request: Request,
    entries: Iterable[T],
    key: Callable[[T], Key],
    limit: int | None,
    cursor: str | None,
) -> tuple[list[T], dict[str, str]]:
    """Answer the piece of a list that is asked for, and the headers that lead to the next one.

    Parameters
    ----------
    request
        The request.
    entries
        The whole list, in the order in which it is answered.
    key
        Answers what orders the entries; no two have the same.
    limit
        Entries at most; None = all, or `MOST` with a cursor.
    cursor
        Where to go on; None = at the beginning.

    Raises
    ------
    ApiError
        400 when the cursor is none of ours.
    """
    if limit is None and cursor is None:
        return list(entries), {}
    ordered = sorted(entries, key=key)
    if cursor is not None:
        last = opened(cursor)
        ordered = [entry for entry in ordered if key(entry) > last]
    most = limit or MOST
    if len(ordered) <= most:
        return ordered, {}
    shown = ordered[:most]
    query = urlencode({"limit": most, "cursor": closed(key(shown[-1]))})
    return shown, {"link": f'<{request.url.path}?{query}>; rel="next"'}


def closed(key: Key) -> str:
    """Write a sort key as a cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def opened(cursor: str) -> Key:
    """Read a cursor.

    Raises
    ------
    ApiError
        400 when it is none of ours.
    """
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(text, type=Key)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise bad_request(
            "cursor", "cursor: is none of this API; take it from the header Link of a list"
        ) from error
