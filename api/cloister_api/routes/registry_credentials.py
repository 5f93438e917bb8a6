"""/api/registry-credentials (spec, "Related resources"; client contract, section 3)."""

from fastapi import APIRouter, Request, Response

from cloister_api.routes.request import Act, answer, context_of, principal_of
from cloister_api.schemas.resources import RegistryLogin

__all__ = ["router"]

router = APIRouter(prefix="/api/registry-credentials", tags=["registry credentials"])


@router.get("")
async def list_credentials(request: Request) -> Response:
    """Answer the status of each registry; an object, not a list."""
    return answer(context_of(request).related.registry_credentials.all(principal_of(request)))


@router.put("/{registry}")
async def put_credentials(request: Request, registry: str, body: RegistryLogin) -> Response:
    """Create or replace the credentials of a registry."""
    async with Act(request, "registry-credential.put", registry):
        put = await context_of(request).related.registry_credentials.put(
            principal_of(request), registry, body
        )
    return answer(put)


@router.delete("/{registry}", status_code=204)
async def delete_credentials(request: Request, registry: str) -> Response:
    """Delete the credentials of a registry."""
    async with Act(request, "registry-credential.delete", registry, success=204):
        await context_of(request).related.registry_credentials.delete(
            principal_of(request), registry
        )
    return Response(status_code=204)
