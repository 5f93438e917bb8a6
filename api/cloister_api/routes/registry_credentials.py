"""/api/registry-credentials (spec, "Related resources"; client contract, section 3)."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from cloister_api.routes.dependencies import (
    Act,
    answer,
    context_of,
    match_of,
    principal_of,
    recorded_answer,
)
from cloister_api.routes.responses import says
from cloister_api.routes.strict import StrictRoute
from cloister_api.schemas.answers import RegistryCredentials, RegistryStatus
from cloister_api.schemas.resources import PutRegistryCredentialsRequest

__all__ = ["router"]

router = APIRouter(
    prefix="/api/registry-credentials", tags=["registry credentials"], route_class=StrictRoute
)

RegistryName = Annotated[
    str,
    Path(description="Which one.", json_schema_extra={"enum": ["ghcr", "gcr", "dockerhub"]}),
]


@router.get("", responses=says(RegistryCredentials))
async def list_credentials(request: Request) -> Response:
    """Answer the status of each registry; an object, not a list."""
    return answer(context_of(request).related.registry_credentials.all(principal_of(request)))


@router.put("/{registry}", responses=says(RegistryStatus, 404, 409, 412))
async def put_credentials(
    request: Request, registry: RegistryName, body: PutRegistryCredentialsRequest
) -> Response:
    """Create or replace the credentials of a registry."""
    async with Act(request, "registry-credential.put", registry):
        put = await context_of(request).related.registry_credentials.put(
            principal_of(request), registry, body, match_of(request)
        )
    return recorded_answer(put)


@router.delete("/{registry}", status_code=204, responses=says(None, 404, 409, 412, status=204))
async def delete_credentials(request: Request, registry: RegistryName) -> Response:
    """Delete the credentials of a registry."""
    async with Act(request, "registry-credential.delete", registry, success=204):
        await context_of(request).related.registry_credentials.delete(
            principal_of(request), registry, match_of(request)
        )
    return Response(status_code=204)
