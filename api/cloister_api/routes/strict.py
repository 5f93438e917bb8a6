"""Nothing of a request is accepted and then ignored: names that stand twice, unknown parameters.

A query parameter that nobody reads is a misspelt one: usage "since" nothing is all usage.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from typing_extensions import override

from cloister_api.errors import refused_fields
from cloister_api.http.json_duplicates import names_twice
from cloister_api.schemas.envelope import Detail

__all__ = ["StrictRoute"]

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
