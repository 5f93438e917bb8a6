"""/api/secrets (spec 8, 24)."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from cloister_api.routes.audit import AuditedAction
from cloister_api.routes.dependencies import context_of, principal_of, record_response
from cloister_api.routes.pagination import paginate
from cloister_api.routes.parameters import (
    Cursor,
    IdempotencyKey,
    IfMatch,
    Limit,
    checked_idempotency_key,
)
from cloister_api.routes.responses import ETAG, LINK, LOCATION, responses
from cloister_api.routes.route_classes import StrictRoute
from cloister_api.schemas.resource_responses import SecretResponse
from cloister_api.schemas.resources import CreateSecretRequest, UpdateSecretRequest
from cloister_api.wire.json_response import JsonResponse

__all__ = ["router"]

SecretName = Annotated[str, Path(description="Its name, or its `id`.", min_length=1)]

router = APIRouter(prefix="/api/secrets", tags=["secrets"], route_class=StrictRoute)


def sort_key(record: SecretResponse) -> tuple[str, ...]:
    """Return what orders secrets."""
    return (record.name, record.repo or "")


@router.get("", responses=responses(400, headers=(LINK,)))
async def list_secrets(
    request: Request, limit: Limit = None, cursor: Cursor = None
) -> JsonResponse[list[SecretResponse]]:
    """List the secrets of the organization; values are never in a response."""
    records = context_of(request).related.secrets.all(principal_of(request))
    page, headers = paginate(request, records, sort_key, limit, cursor)
    return JsonResponse(page, headers=headers)


@router.post("", status_code=201, responses=responses(409, status=201, headers=(LOCATION, ETAG)))
async def create_secret(
    request: Request, body: CreateSecretRequest, key: IdempotencyKey = None
) -> JsonResponse[SecretResponse]:
    """Create a secret."""
    retry_key = checked_idempotency_key(key)
    async with AuditedAction(request, "secret.create", body.name, success=201) as action:
        made = await context_of(request).related.secrets.create(
            principal_of(request), body, retry_key
        )
        action.target = made.record.id
    # Other repositories may have a secret of the name.
    address = made.record.id if made.record.repo else body.name
    return record_response(made, 201, location=f"/api/secrets/{address}")


@router.get("/{name}", responses=responses(404, 409, headers=(ETAG,)))
async def get_secret(request: Request, name: SecretName) -> JsonResponse[SecretResponse]:
    """Return the metadata of a secret and who uses it."""
    return record_response(context_of(request).related.secrets.one(principal_of(request), name))


@router.put("/{name}", responses=responses(404, 409, 412, headers=(ETAG,)))
async def update_secret(
    request: Request, name: SecretName, body: UpdateSecretRequest, match: IfMatch = None
) -> JsonResponse[SecretResponse]:
    """Write a new value; containers get it at their next deploy."""
    async with AuditedAction(request, "secret.update", name):
        written = await context_of(request).related.secrets.update(
            principal_of(request), name, body.value, match
        )
    return record_response(written)


@router.delete("/{name}", status_code=204, responses=responses(404, 409, 412, status=204))
async def delete_secret(request: Request, name: SecretName, match: IfMatch = None) -> Response:
    """Delete a secret that nobody uses."""
    async with AuditedAction(request, "secret.delete", name, success=204):
        await context_of(request).related.secrets.delete(principal_of(request), name, match)
    return Response(status_code=204)
