"""/api/ssh-keys (spec 8, 24)."""

from fastapi import APIRouter, Request, Response

from cloister_api.routes.audit import AuditedAction
from cloister_api.routes.dependencies import context_of, principal_of, record_response
from cloister_api.routes.pagination import paginate
from cloister_api.routes.parameters import (
    Cursor,
    IdempotencyKey,
    IfMatch,
    Limit,
    Name,
    checked_idempotency_key,
)
from cloister_api.routes.responses import ETAG, LINK, LOCATION, responses
from cloister_api.routes.route_classes import StrictRoute
from cloister_api.schemas.resource_responses import SshKeyResponse
from cloister_api.schemas.resources import CreateSshKeyRequest
from cloister_api.wire.json_response import JsonResponse

__all__ = ["router"]

router = APIRouter(prefix="/api/ssh-keys", tags=["SSH keys"], route_class=StrictRoute)


@router.get("", responses=responses(400, headers=(LINK,)))
async def list_ssh_keys(
    request: Request, limit: Limit = None, cursor: Cursor = None
) -> JsonResponse[list[SshKeyResponse]]:
    """List the SSH keys of the organization."""
    records = context_of(request).related.ssh_keys.all(principal_of(request))
    page, headers = paginate(request, records, lambda each: (each.name,), limit, cursor)
    return JsonResponse(page, headers=headers)


@router.post("", status_code=201, responses=responses(409, status=201, headers=(LOCATION, ETAG)))
async def create_ssh_key(
    request: Request, body: CreateSshKeyRequest, key: IdempotencyKey = None
) -> JsonResponse[SshKeyResponse]:
    """Register an SSH key."""
    retry_key = checked_idempotency_key(key)
    async with AuditedAction(request, "ssh-key.create", body.name, success=201) as action:
        made = await context_of(request).related.ssh_keys.create(
            principal_of(request), body, retry_key
        )
        action.target = made.record.id
    return record_response(made, 201, location=f"/api/ssh-keys/{body.name}")


@router.delete("/{name}", status_code=204, responses=responses(404, 409, 412, status=204))
async def delete_ssh_key(request: Request, name: Name, match: IfMatch = None) -> Response:
    """Delete an SSH key that nobody uses."""
    async with AuditedAction(request, "ssh-key.delete", name, success=204):
        await context_of(request).related.ssh_keys.delete(principal_of(request), name, match)
    return Response(status_code=204)
