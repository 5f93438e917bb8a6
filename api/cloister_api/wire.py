"""JSON on the wire.

Requests parsed with bounds on depth and a report of repeated names, typed responses.
"""

import json
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Generic, Self, TypeVar

import msgspec
from fastapi import Request, Response
from pydantic import BaseModel
from typing_extensions import override

from cloister_clients.foreign_json import parse_apart

T = TypeVar("T")

MAX_DEPTH = 64
"""How deep arrays and objects of a body may be nested."""
MAX_VALUES = 4096
"""How many values a body may have, those in arrays and objects counted each. A create with every
variable, secret and key that a container may have is below a thousand; metadata of a key could be
two thousand."""
MAX_DIGITS = 400
"""Digits of an integer: to read one takes a time that is quadratic in them. The largest number that
a float can be has 309."""
MAX_SHOWN = 64
"""Characters of a name that a path shows."""
TOO_DEEP = f"arrays and objects are nested more than {MAX_DEPTH} levels deep; nest them less"
TOO_MANY = "there are more than {} values; send fewer"
TOO_LONG = f"an integer has more than {MAX_DIGITS} digits; write fewer"
REFUSALS = {
    TOO_DEEP: "TooDeep",
    TOO_MANY.format(MAX_VALUES): "TooManyValues",
    TOO_LONG: "NumberTooLong",
}
"""Why a body is not parsed although it may be JSON, each with its word for programs."""

WHITE_SPACE = b" \t\r\n"
"""What may stand around a value (RFC 8259, section 2)."""
STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
OTHERS = bytes(each for each in range(256) if each not in STEP)


class BoundError(json.JSONDecodeError):
    """A body is beyond a bound."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "", 0)


class DepthError(BoundError):
    """A body is nested too deeply."""

    def __init__(self) -> None:
        super().__init__(TOO_DEEP)


class RepeatedNames(dict[str, Any]):
    """A JSON object in which names are repeated; it has the last value of each."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs
        """The names and values as they were sent."""


def check_bounds(text: bytes, most: int) -> None:
    """Refuse JSON beyond the bounds, before it is parsed; other faults are left to parsers.

    Raises
    ------
    DepthError
        When it is nested too deeply.
    BoundError
        When it has too many values.
    """
    openings = text.count(b"[") + text.count(b"{")
    if openings <= MAX_DEPTH and openings + text.count(b",") < most:
        return
    # Every value but the first follows a comma or an opening bracket. Most have a name, so that
    # twice as many texts, of two quotation marks each, cannot be within the bound.
    quotes = 4 * most
    pieces = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"', quotes)
    outside = b"".join(pieces[::2])
    # White space may stand before any of them, so that they are cut after it is gone.
    brackets = outside.translate(None, OTHERS)[: 4 * most]
    if max(accumulate(map(STEP.__getitem__, brackets)), default=0) > MAX_DEPTH:
        raise DepthError
    values = sum(map(outside.count, (b",", b"[", b"{")))
    if len(pieces) > quotes or values >= most:
        raise BoundError(TOO_MANY.format(most))


def decode(decoder: "msgspec.json.Decoder[T]", text: bytes) -> T:
    """Decode JSON into a form in which nothing is nested deeply.

    Raises
    ------
    DepthError
        When something that the form leaves out is nested too deeply.
    msgspec.DecodeError, UnicodeDecodeError
        When it does not have the form.
    """
    try:
        return decoder.decode(text)
    except RecursionError as error:
        raise DepthError from error


def parse(text: bytes, most: int = MAX_VALUES) -> tuple[Any, list[str]]:
    """Parse JSON.

    Parameters
    ----------
    text
        The JSON, in UTF-8.
    most
        How many values it may have.

    Returns
    -------
    tuple[Any, list[str]]
        The value, and the paths of names that are repeated in one object.

    Raises
    ------
    json.JSONDecodeError
        When it is not JSON, or beyond a bound.
    """
    check_bounds(text, most)
    repeated = False

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        built = dict(pairs)
        if len(built) == len(pairs):
            return built
        repeated = True
        return RepeatedNames(pairs)

    try:
        # In another encoding the bytes of brackets and quotation marks mean something else.
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise json.JSONDecodeError("it is not UTF-8", "", 0) from error
    value = json.loads(decoded, object_pairs_hook=build, parse_int=integer)
    return value, paths_of_repeated_names(value) if repeated else []


def integer(digits: str) -> int:
    """Read an integer.

    Raises
    ------
    BoundError
        When it is too long.
    """
    if len(digits) > MAX_DIGITS:
        raise BoundError(TOO_LONG)
    return int(digits)


def paths_of_repeated_names(value: Any) -> list[str]:
    """Return the paths, such as ``variables.A`` or ``results.0.name``, in order."""
    found: list[str] = []
    left: list[tuple[str, Any]] = [("", value)]
    while left:
        path, each = left.pop()
        if isinstance(each, dict):
            pairs = each.pairs if isinstance(each, RepeatedNames) else list(each.items())
            counts = Counter(name for name, _ in pairs)
            found += [path + shown(name) for name, count in counts.items() if count > 1]
        elif isinstance(each, list):
            pairs = [(str(number), inner) for number, inner in enumerate(each)]
        else:
            continue
        left += [
            (f"{path}{shown(name)}.", inner)
            for name, inner in pairs
            if isinstance(inner, dict | list)
        ]
    return sorted(set(found))


def shown(name: str) -> str:
    """Return a name of a body as a path shows it; a long one is cut."""
    return name if len(name) <= MAX_SHOWN else f"{name[:MAX_SHOWN]}…"


class StrictRequest(Request):
    """A request whose body is parsed once, both for repeated names and for its value."""

    _parsed: tuple[Any, list[str]] | None = None
    _failure: Exception | None = None

    async def leave_out_null(self) -> None:
        """Drop a body that is ``null``, as Go encodes one that is not there."""
        if (await self.body()).strip(WHITE_SPACE) == b"null":
            self._body = b""

    @override
    async def json(self) -> Any:
        """Return the value of the body.

        Raises
        ------
        ValueError
            When it is not JSON, or beyond a bound.
        """
        value, _ = await self._parse()
        return value

    async def repeated_names(self) -> list[str]:
        """Return the paths of repeated names; a body that is not JSON has none."""
        try:
            _, names = await self._parse()
        except ValueError:
            # The framework calls `json` next and turns the same failure into a response.
            return []
        return names

    async def _parse(self) -> tuple[Any, list[str]]:
        if self._failure is not None:
            raise self._failure
        if self._parsed is None:
            try:
                self._parsed = await parse_apart(parse, await self.body())
            except ValueError as error:
                self._failure = error
                raise
        return self._parsed


def dump(value: Any) -> Any:
    """Return a response body as what msgspec encodes.

    Raises
    ------
    TypeError
        When it is not one.
    """
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True)
    raise TypeError(f"{type(value).__name__} is not a response body; return a model of schemas")


ENCODER = msgspec.json.Encoder(enc_hook=dump)


def encode(value: Any) -> bytes:
    """Encode a response body, or a list of them, as JSON."""
    return ENCODER.encode(value)


class JsonResponse(Response, Generic[T]):
    """A response whose body is of type `T`.

    A route that is annotated with it has `T` as its response model (`TypedRoute`), so that the
    type checker holds the OpenAPI document to what the route returns.
    """

    media_type = "application/json"

    def __init__(
        self, body: T, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(encode(body), status, headers=headers)

    @classmethod
    def encoded(cls, content: bytes, headers: Mapping[str, str] | None = None) -> Self:
        """Build a response of a body that is encoded already."""
        response = cls.__new__(cls)
        Response.__init__(response, content, headers=headers, media_type=cls.media_type)
        return response
