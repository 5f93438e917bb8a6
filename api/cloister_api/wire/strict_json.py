"""Parsing of JSON from the wire: bounded in depth, and with a report of repeated names.

JSON leaves open what a repeated name means (RFC 8259, section 4); parsers take the last value, so
that those before it would be accepted and then ignored. It leaves open as well how deep values may
be nested; parsers and whoever walks a value later recurse.
"""

import json
import re
from collections import Counter
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from typing_extensions import override

__all__ = ["MAX_DEPTH", "TOO_DEEP", "DepthError", "StrictRequest", "decode", "parse"]

T = TypeVar("T")

MAX_DEPTH = 64
"""How deep arrays and objects of a body may be nested."""
TOO_DEEP = f"arrays and objects are nested more than {MAX_DEPTH} levels deep; nest them less"

STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
WHITE_SPACE = b" \t\r\n"
"""What may stand around a value (RFC 8259, section 2)."""
STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
OTHERS = bytes(each for each in range(256) if each not in STEP)


class DepthError(json.JSONDecodeError):
    """A body is nested too deeply."""

    def __init__(self) -> None:
        super().__init__(TOO_DEEP, "", 0)


class RepeatedNames(dict[str, Any]):
    """A JSON object in which names are repeated; it has the last value of each."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs
        """The names and values as they were sent."""


def check_depth(text: bytes) -> None:
    """Refuse JSON that is nested too deeply, before it is parsed; other faults are left to parsers.

    Raises
    ------
    DepthError
        When it is.
    """
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return
    brackets = STRING.sub(b"", text).translate(None, OTHERS)
    if max(accumulate(map(STEP.__getitem__, brackets)), default=0) > MAX_DEPTH:
        raise DepthError


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


def parse(text: bytes) -> tuple[Any, list[str]]:
    """Parse JSON.

    Returns
    -------
    tuple[Any, list[str]]
        The value, and the paths of names that are repeated in one object.

    Raises
    ------
    ValueError
        When it is not JSON, or a DepthError.
    """
    check_depth(text)
    repeated = False

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        built = dict(pairs)
        if len(built) == len(pairs):
            return built
        repeated = True
        return RepeatedNames(pairs)

    value = json.loads(text, object_pairs_hook=build)
    return value, paths_of_repeated_names(value) if repeated else []


def paths_of_repeated_names(value: Any) -> list[str]:
    """Return the paths, such as ``variables.A`` or ``results.0.name``, in order."""
    found: list[str] = []
    left: list[tuple[str, Any]] = [("", value)]
    while left:
        path, each = left.pop()
        if isinstance(each, dict):
            pairs = each.pairs if isinstance(each, RepeatedNames) else list(each.items())
            counts = Counter(name for name, _ in pairs)
            found += [path + name for name, count in counts.items() if count > 1]
            left += [(f"{path}{name}.", inner) for name, inner in pairs]
        elif isinstance(each, list):
            left += [(f"{path}{number}.", inner) for number, inner in enumerate(each)]
    return sorted(set(found))


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
            When it is not JSON, or a DepthError.
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
                self._parsed = parse(await self.body())
            except ValueError as error:
                self._failure = error
                raise
        return self._parsed
