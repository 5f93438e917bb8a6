"""Pagination of lists: ``?limit=`` and ``?cursor=``, the next page in the header Link (RFC 8288).

Without both a list is returned whole. A cursor holds the sort key of the last entry of a page, so
that entries which are created or deleted between two pages are neither repeated nor make others be
left out.
"""

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar
from urllib.parse import urlencode

import msgspec
from fastapi import Request

from cloister_api.errors import ApiError, bad_request
from cloister_api.routes.parameters import MAX_LIMIT

__all__ = ["decode_cursor", "encode_cursor", "next_page", "not_a_cursor", "paginate"]

SortKey = tuple[str, ...]
T = TypeVar("T")


def paginate(
    request: Request,
    entries: Iterable[T],
    sort_key: Callable[[T], SortKey],
    limit: int | None,
    cursor: str | None,
    kept: Mapping[str, str | None] | None = None,
) -> tuple[list[T], dict[str, str]]:
    """Return the requested page of a list, and the headers that lead to the next one.

    Parameters
    ----------
    request
        The request.
    entries
        The whole list, in the order in which it is returned without pages.
    sort_key
        Returns what orders the entries; no two have the same.
    limit
        Entries at most; None = all, or `MAX_LIMIT` with a cursor.
    cursor
        Start of the page; None = at the beginning.
    kept
        Other parameters of the query that the next page needs too; None = none.

    Raises
    ------
    ApiError
        400 when the cursor is not of this API.
    """
    if limit is None and cursor is None:
        return list(entries), {}
    ordered = sorted(entries, key=sort_key)
    if cursor is not None:
        last = decode_cursor(cursor)
        ordered = [entry for entry in ordered if sort_key(entry) > last]
    size = limit or MAX_LIMIT
    if len(ordered) <= size:
        return ordered, {}
    page = ordered[:size]
    return page, next_page(request, size, sort_key(page[-1]), kept)


def next_page(
    request: Request, size: int, last: SortKey, kept: Mapping[str, str | None] | None = None
) -> dict[str, str]:
    """Return the header that leads to the next page.

    Parameters
    ----------
    request
        The request.
    size
        Entries of a page.
    last
        Sort key of the last entry of this one.
    kept
        Other parameters of the query that the next page needs too; None = none.
    """
    others = {name: value for name, value in (kept or {}).items() if value is not None}
    query = urlencode({**others, "limit": size, "cursor": encode_cursor(last)})
    return {"link": f'<{request.url.path}?{query}>; rel="next"'}


def encode_cursor(key: SortKey) -> str:
    """Return a sort key as a cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def decode_cursor(cursor: str) -> SortKey:
    """Return the sort key of a cursor.

    Raises
    ------
    ApiError
        400 when it is not of this API.
    """
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(text, type=SortKey)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise not_a_cursor() from error


def not_a_cursor() -> ApiError:
    """Build a 400: the cursor is not of this API."""
    return bad_request(
        "cursor", "cursor: is not one of this API; take it from the header Link of a list"
    )
