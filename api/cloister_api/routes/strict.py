"""Routes that ignore nothing of a request: repeated names and unknown parameters are refused.

A query parameter that nobody reads is a misspelt one: usage "since" nothing is all usage.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from typing_extensions import override

from cloister_api.errors import refused_fields
from cloister_api.http.strict_json import StrictRequest
from cloister_api.schemas.envelope import Detail

__all__ = ["StrictRoute"]

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class StrictRoute(APIRoute):
    """A route that refuses whatever it would not read."""

    @override
    def get_route_handler(self) -> Handler:
        """Build the handler; it checks the names in query and body before anything else."""
        handle = super().get_route_handler()
        known = frozenset(each.alias for each in self.dependant.query_params)
        reads_body = self.body_field is not None

        async def handle_strictly(given: Request) -> Response:
            request = StrictRequest(given.scope, given.receive)
            problems = list(query_problems(request.query_params.multi_items(), known))
            if reads_body:
                problems += [
                    Detail(name, "Duplicate", "is in the body more than once; keep one of them")
                    for name in await request.repeated_names()
                ]
            if problems:
                raise refused_fields(problems)
            return await handle(request)

        return handle_strictly


def query_problems(given: Iterable[tuple[str, str]], known: frozenset[str]) -> Iterator[Detail]:
    """Yield what is wrong with the names of a query.

    Parameters
    ----------
    given
        Names and values as they were sent.
    known
        Names that are read.
    """
    for name, count in sorted(Counter(name for name, _ in given).items()):
        if name not in known:
            words = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
            yield Detail(name, "UnknownParameter", f"unknown query parameter; {words}")
        elif count > 1:
            yield Detail(name, "Duplicate", "is in the query more than once; keep one of them")
