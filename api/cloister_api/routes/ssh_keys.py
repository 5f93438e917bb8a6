"""/api/ssh-keys (spec, "Related resources"; client contract, section 3)."""

from fastapi import APIRouter, Request, Response

from cloister_api.routes.dependencies import (
    Act,
    answer,
    context_of,
    match_of,
    principal_of,
    recorded_answer,
    retry_key_of,
)
from cloister_api.routes.pagination import Cursor, Limit, piece
from cloister_api.routes.responses import Named, says
from cloister_api.routes.strict import StrictRoute
from cloister_api.schemas.answers import SshKey
from cloister_api.schemas.resources import CreateSshKeyRequest

__all__ = ["router"]

router = APIRouter(prefix="/api/ssh-keys", tags=["SSH keys"], route_class=StrictRoute)


@router.get("", responses=says(list[SshKey], 400))
async def list_ssh_keys(request: Request, limit: Limit = None, cursor: Cursor = None) -> Response:
    """List the SSH keys of the organization."""
    records = context_of(request).related.ssh_keys.all(principal_of(request))
    shown, headers = piece(request, records, lambda each: (each["name"],), limit, cursor)
    return answer(shown, headers=headers)


@router.post("", status_code=201, responses=says(SshKey, 409, status=201))
async def create_ssh_key(request: Request, body: CreateSshKeyRequest) -> Response:
    """Register an SSH key."""
    retry_key = retry_key_of(request)
    async with Act(request, "ssh-key.create", body.name, success=201) as act:
        made = await context_of(request).related.ssh_keys.create(
            principal_of(request), body, retry_key
        )
        act.target = made.record["id"]
    return recorded_answer(made, 201, {"location": f"/api/ssh-keys/{body.name}"})


@router.delete("/{name}", status_code=204, responses=says(None, 404, 409, 412, status=204))
async def delete_ssh_key(request: Request, name: Named) -> Response:
    """Delete an SSH key that nobody uses."""
    async with Act(request, "ssh-key.delete", name, success=204):
        await context_of(request).related.ssh_keys.delete(
            principal_of(request), name, match_of(request)
        )
    return Response(status_code=204)
