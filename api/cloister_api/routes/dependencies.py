"""What every route takes from a request, and the response of one record."""

from typing import TypeVar

from fastapi import Depends, Request

from cloister_api.auth.authenticator import Principal
from cloister_api.context import Context
from cloister_api.schemas.request import EmptyRequest
from cloister_api.schemas.response import ResponseBody
from cloister_api.services.preconditions import VersionedRecord
from cloister_api.wire.json_response import JsonResponse

__all__ = ["NO_FIELDS", "context_of", "principal_of", "record_response"]

Body = TypeVar("Body", bound=ResponseBody)
EMPTY = EmptyRequest()


async def no_fields(body: EmptyRequest = EMPTY) -> None:
    """Refuse a body with fields, which nothing would read."""


NO_FIELDS = (Depends(no_fields),)
"""Dependencies of a POST that takes no fields: unknown ones are refused there too (spec 20.1)."""


def context_of(request: Request) -> Context:
    """Return what the facade has."""
    context: Context = request.app.state.context
    return context


def principal_of(request: Request) -> Principal:
    """Return whose key a request has; the middleware has authenticated it."""
    principal: Principal = request.scope["state"]["principal"]
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
