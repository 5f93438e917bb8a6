"""What every route takes from a request, and the response of one record."""

from typing import TypeVar

from fastapi import Depends, FastAPI, Request

from cloister_api.auth.authenticator import Principal
from cloister_api.context import Context
from cloister_api.errors import forbidden, unavailable
from cloister_api.schemas.request import EmptyRequest
from cloister_api.schemas.response import ResponseBody
from cloister_api.services.preconditions import VersionedRecord
from cloister_api.sessions.sessions import is_recent, not_recent
from cloister_api.wire.json_response import JsonResponse

__all__ = [
    "NO_FIELDS",
    "context_of",
    "person_of",
    "principal_of",
    "record_response",
    "running_context",
]

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
    request
        The request.
    recent
        Whether they have to have proven a short while ago who they are.

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
    versioned
        The record and its version.
    status
        HTTP status.
    location
        Path of a record that was created; None = none was.
    """
    headers = {"location": location} if location is not None else {}
    headers["etag"] = f'"{versioned.version}"'
    return JsonResponse(versioned.record, status, headers)
