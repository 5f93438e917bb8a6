"""/api/ssh-keys (spec, "Related resources"; client contract, section 3)."""

from fastapi import APIRouter, Request, Response

from cloister_api.routes.request import Act, answer, context_of, principal_of
from cloister_api.schemas.resources import KeyCreate

__all__ = ["router"]

router = APIRouter(prefix="/api/ssh-keys", tags=["SSH keys"])


@router.get("")
async def list_keys(request: Request) -> Response:
    """List the SSH keys of the organization."""
    return answer(context_of(request).related.ssh_keys.all(principal_of(request)))


@router.post("", status_code=201)
async def create_key(request: Request, body: KeyCreate) -> Response:
    """Register an SSH key."""
    async with Act(request, "ssh-key.create", body.name, success=201):
        made = await context_of(request).related.ssh_keys.create(principal_of(request), body)
    return answer(made, 201, {"location": f"/api/ssh-keys/{body.name}"})


@router.delete("/{name}", status_code=204)
async def delete_key(request: Request, name: str) -> Response:
    """Delete an SSH key that nobody uses."""
    async with Act(request, "ssh-key.delete", name, success=204):
        await context_of(request).related.ssh_keys.delete(principal_of(request), name)
    return Response(status_code=204)
