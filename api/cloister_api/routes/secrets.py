"""/api/secrets (spec, "Related resources"; client contract, section 3)."""

from fastapi import APIRouter, Request, Response

from cloister_api.routes.request import Act, answer, context_of, principal_of
from cloister_api.schemas.resources import SecretCreate, SecretValue

__all__ = ["router"]

router = APIRouter(prefix="/api/secrets", tags=["secrets"])


@router.get("")
async def list_secrets(request: Request) -> Response:
    """List the secrets of the organization; values are never answered."""
    return answer(context_of(request).related.secrets.all(principal_of(request)))


@router.post("", status_code=201)
async def create_secret(request: Request, body: SecretCreate) -> Response:
    """Create a secret."""
    async with Act(request, "secret.create", body.name, success=201):
        made = await context_of(request).related.secrets.create(principal_of(request), body)
    return answer(made, 201, {"location": f"/api/secrets/{body.name}"})


@router.get("/{name}")
async def get_secret(request: Request, name: str) -> Response:
    """Answer the metadata of a secret and who uses it."""
    return answer(context_of(request).related.secrets.one(principal_of(request), name))


@router.put("/{name}")
async def update_secret(request: Request, name: str, body: SecretValue) -> Response:
    """Write a new value; containers get it at their next deploy."""
    async with Act(request, "secret.update", name):
        written = await context_of(request).related.secrets.update(
            principal_of(request), name, body.value
        )
    return answer(written)


@router.delete("/{name}", status_code=204)
async def delete_secret(request: Request, name: str) -> Response:
    """Delete a secret that nobody uses."""
    async with Act(request, "secret.delete", name, success=204):
        await context_of(request).related.secrets.delete(principal_of(request), name)
    return Response(status_code=204)
