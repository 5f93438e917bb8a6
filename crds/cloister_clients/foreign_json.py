"""Reads JSON that an external server sent: bounded in values and depth before it is parsed.

A few bytes of JSON can take a hundred times as much memory once parsed, and a deep document can
exhaust the stack. The clients of `sources` and `registry` read every response through this.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

__all__ = ["TooManyValues", "check_values", "parse_apart", "parse_json"]

T = TypeVar("T")

_AT_ONCE = 65_536
"""Bytes of a document that are parsed in the event loop; it takes a millisecond."""

_JSON: TypeAdapter[Any] = TypeAdapter(Any)
"""Its parser refuses what is nested more than 200 deep."""


class TooManyValues(ValueError):  # noqa: N818 - says what is wrong
    """A document has more values than are read."""


def check_values(body: bytes, *, most: int) -> None:
    """Check how many values a document can have, without parsing it.

    Every value but the first follows a comma or opens a list or an object. Commas in texts count
    too, which makes the bound stricter for these.

    Parameters
    ----------
    most
        Most values: elements of lists and members of objects, nested ones counted each.

    Raises
    ------
    TooManyValues
        When there can be more.
    """
    count = body.count(b",") + body.count(b"[") + body.count(b"{")
    if count > most:
        raise TooManyValues(f"it has {count} values, and at most {most} are read")


def parse_json(body: bytes, *, most: int) -> Any:
    """Parse a document of at most so many values.

    Raises
    ------
    TooManyValues
        When it can have more.
    ValueError
        When it is not JSON, or nested too deep.
    """
    check_values(body, most=most)
    try:
        return _JSON.validate_json(body)
    except ValidationError as error:
        raise ValueError(error.errors(include_url=False, include_input=False)[0]["msg"]) from error


async def parse_apart(parse: Callable[[bytes], T], body: bytes) -> T:
    """Parse a large document outside of the event loop, and a small one directly."""
    if len(body) <= _AT_ONCE:
        return parse(body)
    return await asyncio.to_thread(parse, body)
