"""What every route takes from a request: dependencies, and strict route classes."""

import inspect
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, TypeVar, get_args, get_origin

from fastapi import Depends, FastAPI, Request, Response
from fastapi.routing import APIRoute
from typing_extensions import override

from cloister_api.auth.authenticator import Principal
from cloister_api.context import Context
from cloister_api.errors import forbidden, refused_fields, unavailable
from cloister_api.schemas.forms import Detail, EmptyRequest, ResponseBody
from cloister_api.services.preconditions import VersionedRecord
from cloister_api.sessions.sessions import is_recent, not_recent
from cloister_api.wire import JsonResponse, StrictRequest, shown

Body = TypeVar("Body", bound=ResponseBody)
EMPTY = EmptyRequest()


async def no_fields(body: EmptyRequest = EMPTY) -> None:
    """Refuse a body with fields, which nothing would read."""


NO_FIELDS = (Depends(no_fields),)
"""Dependencies of a POST that takes no fields: unknown ones are refused there too (spec 20.1)."""


def running_context(app: FastAPI) -> Context:
    """Return what the facade has.

    Raises
    ------
    ApiError
        503 while the operator has not published its settings, or the cluster was not read.
    """
    context: Context | None = app.state.context
    if context is None:
        raise unavailable(f"{app.state.waits_for()}; try again")
    if not context.cache.ready:
        raise unavailable("the facade has not read the cluster yet; try again")
    return context


def context_of(request: Request) -> Context:
    """Return what the facade has; 503 where it has nothing yet."""
    return running_context(request.app)


def principal_of(request: Request) -> Principal:
    """Return whose key a request has; the middleware has authenticated it."""
    principal: Principal = request.scope["state"]["principal"]
    return principal


def person_of(request: Request, *, recent: bool = False) -> Principal:
    """Return who is signed in to the dashboard: an admin key may not do what they may.

    A stolen key must neither make others nor administrators.

    Parameters
    ----------
    recent
        Whether they must have proven recently who they are.

    Raises
    ------
    ApiError
        403 for an admin key, and for a sign-in that is too old.
    """
    principal, context = principal_of(request), context_of(request)
    settings = context.settings.dashboard
    if principal.authenticated_at is None or settings is None:
        raise forbidden(
            "an admin key cannot do this: sign in to the dashboard, and use its page or the cookie "
            "of the session at the dashboard's address"
        )
    if recent and not is_recent(principal.authenticated_at, context.clock(), settings.session):
        raise not_recent(settings.session)
    return principal


def record_response(
    versioned: VersionedRecord[Body], status: int = 200, *, location: str | None = None
) -> JsonResponse[Body]:
    """Build the response of one record, with its version as ETag.

    Parameters
    ----------
    location
        Path of a record that was created; None if none was.
    """
    headers = {"location": location} if location is not None else {}
    headers["etag"] = f'"{versioned.version}"'
    return JsonResponse(versioned.record, status, headers)


Endpoint = Callable[..., Any]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class TypedRoute(APIRoute):
    """A route that is documented from its return annotation.

    ``JsonResponse[Body]`` makes ``Body`` the response model, and the type checker holds the route
    to it. The framework validates and encodes nothing, because the route returns a response; so
    what it would build of the declared bodies is left to the application of the document, which
    includes the route with what is declared here.
    """

    def __init__(self, path: str, endpoint: Endpoint, **options: Any) -> None:
        model, declared = response_model(endpoint), options.pop("responses", None)
        if model is not None:
            options["response_model"] = None
        super().__init__(path, endpoint, **options)
        if model is not None:
            self.response_model = model
        self.responses = declared or {}

    @override
    def get_route_handler(self) -> Handler:
        """Build the handler, which parses bodies within bounds."""
        handle = super().get_route_handler()

        async def handle_bounded(given: Request) -> Response:
            return await handle(StrictRequest(given.scope, given.receive))

        return handle_bounded


class StrictRoute(TypedRoute):
    """A route that refuses whatever it would not read."""

    @override
    def get_route_handler(self) -> Handler:
        """Build the handler; it checks the names in query and body before anything else."""
        handle = APIRoute.get_route_handler(self)
        required = {
            each.alias: missing_words(each.field_info.json_schema_extra)
            for each in self.dependant.query_params
            if each.field_info.is_required()
        }
        known = frozenset(each.alias for each in self.dependant.query_params)
        reads_body = self.body_field is not None

        async def handle_strictly(given: Request) -> Response:
            request = StrictRequest(given.scope, given.receive)
            query = request.query_params
            problems = list(query_problems(query.multi_items(), known))
            if not problems:
                absent = required.keys() - query.keys()
                problems += [Detail(name, "Missing", required[name]) for name in sorted(absent)]
            if reads_body:
                await request.leave_out_null()
                problems += [
                    Detail(name, "Duplicate", "is in the body more than once; keep one of them")
                    for name in await request.repeated_names()
                ]
            if problems:
                raise refused_fields(problems)
            return await handle(request)

        return handle_strictly


def response_model(endpoint: Endpoint) -> Any:
    """Return the body that an endpoint returns by its annotation; None if it has no JSON body.

    Of several the first one is the success; the others are declared with their status.
    """
    returned = inspect.signature(endpoint).return_annotation
    for each in (returned, *get_args(returned)):
        if get_origin(each) is JsonResponse:
            return get_args(each)[0]
    return None


def missing_words(schema: Any) -> str:
    """Return what is wrong when a required parameter is missing, with its values if few."""
    words = schema.get("enum", ()) if isinstance(schema, Mapping) else ()
    return f"is missing; name one of {', '.join(words)}" if words else "is missing"


def query_problems(given: Iterable[tuple[str, str]], known: frozenset[str]) -> Iterator[Detail]:
    """Yield what is wrong with the names of a query.

    Parameters
    ----------
    given
        Names and values as they were sent.
    """
    for name, count in sorted(Counter(name for name, _ in given).items()):
        if name not in known:
            words = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
            yield Detail(shown(name), "UnknownParameter", f"unknown query parameter; {words}")
        elif count > 1:
            yield Detail(name, "Duplicate", "is in the query more than once; keep one of them")
