"""Nothing of a request is accepted and then ignored: names that stand twice, unknown parameters.

JSON lets a name stand twice and leaves open what that means (RFC 8259, section 4); parsers take the
last one. A query parameter that nobody reads is a misspelt one: usage "since" nothing is all usage.
"""

import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from typing_extensions import override

from cloister_api.errors import refused_fields
from cloister_api.schemas.envelope import Detail

__all__ = ["StrictRoute", "names_twice"]

Handle = Callable[[Request], Coroutine[Any, Any, Response]]


class StrictRoute(APIRoute):
    """A route that refuses what it would not read."""

    @override
    def get_route_handler(self) -> Handle:
        """Look at the names in query and body before anything else is done."""
        handle = super().get_route_handler()
        known = frozenset(each.alias for each in self.dependant.query_params)
        reads_body = self.body_field is not None

        async def strict(request: Request) -> Response:
            wrong = list(problems_of_query(request.query_params.multi_items(), known))
            if reads_body:
                wrong += [
                    Detail(name, "Duplicate", "stands twice in the body; keep one of them")
                    for name in names_twice(await request.body())
                ]
            if wrong:
                raise refused_fields(wrong)
            return await handle(request)

        return strict


def problems_of_query(given: Iterable[tuple[str, str]], known: frozenset[str]) -> Iterator[Detail]:
    """Find what is wrong with the names of a query.

    Parameters
    ----------
    given
        Names and values as they were sent.
    known
        Names that are read.
    """
    for name, times in sorted(Counter(name for name, _ in given).items()):
        if name not in known:
            words = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
            yield Detail(name, "UnknownParameter", f"unknown query parameter; {words}")
        elif times > 1:
            yield Detail(name, "Duplicate", "stands twice in the query; keep one of them")


class Pairs(tuple[tuple[str, Any], ...]):
    """The names and values of a JSON object as they were sent."""

    __slots__ = ()


def names_twice(body: bytes) -> list[str]:
    """Answer the names that stand twice in one object of a body, with their paths.

    Parameters
    ----------
    body
        The body. What is no JSON has no names; whoever parses it says so.
    """
    try:
        whole = json.loads(body, object_pairs_hook=Pairs)
    except (ValueError, RecursionError):
        return []
    found: list[str] = []
    left: list[tuple[str, Any]] = [("", whole)]
    while left:
        path, value = left.pop()
        if isinstance(value, Pairs):
            times = Counter(name for name, _ in value)
            found += [path + name for name, count in times.items() if count > 1]
            left += [(f"{path}{name}.", each) for name, each in value]
        elif isinstance(value, list):
            left += [(f"{path}{number}.", each) for number, each in enumerate(value)]
    return sorted(set(found))
