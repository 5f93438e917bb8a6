"""A JSON parser that reports names repeated in one object.

JSON leaves open what a repeated name means (RFC 8259, section 4); parsers take the last value, so
that those before it would be accepted and then ignored.
"""

import json
from collections import Counter
from typing import Any

from fastapi import Request
from typing_extensions import override

__all__ = ["StrictRequest", "parse"]


class RepeatedNames(dict[str, Any]):
    """A JSON object in which names are repeated; it has the last value of each."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs
        """The names and values as they were sent."""


def parse(text: bytes) -> tuple[Any, list[str]]:
    """Parse JSON.

    Returns
    -------
    tuple[Any, list[str]]
        The value, and the paths of names that are repeated in one object.

    Raises
    ------
    ValueError
        When it is not JSON; also RecursionError when it is nested too deeply.
    """
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

    @override
    async def json(self) -> Any:
        """Return the value of the body.

        Raises
        ------
        ValueError
            When it is not JSON; also RecursionError when it is nested too deeply.
        """
        value, _ = await self._parse()
        return value

    async def repeated_names(self) -> list[str]:
        """Return the paths of repeated names; a body that is not JSON has none."""
        try:
            _, names = await self._parse()
        except (ValueError, RecursionError):
            # The framework calls `json` next and turns the same failure into a response.
            return []
        return names

    async def _parse(self) -> tuple[Any, list[str]]:
        if self._failure is not None:
            raise self._failure
        if self._parsed is None:
            try:
                self._parsed = parse(await self.body())
            except (ValueError, RecursionError) as error:
                self._failure = error
                raise
        return self._parsed
