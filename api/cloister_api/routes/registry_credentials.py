"""/api/registry-credentials (spec 8, 24)."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from cloister_api.routes.audit import AuditedAction
from cloister_api.routes.dependencies import context_of, principal_of, record_response
from cloister_api.routes.parameters import IfMatch
from cloister_api.routes.responses import ETAG, responses
from cloister_api.routes.route_classes import StrictRoute
from cloister_api.schemas.resource_responses import (
    RegistryCredentialsResponse,
    RegistryStatusResponse,
)
from cloister_api.schemas.resources import PutRegistryCredentialsRequest
from cloister_api.wire.json_response import JsonResponse

__all__ = ["router"]

router = APIRouter(
    prefix="/api/registry-credentials", tags=["registry credentials"], route_class=StrictRoute
)

Registry = Annotated[
    str,
    Path(description="Which one.", json_schema_extra={"enum": ["ghcr", "gcr", "dockerhub"]}),
]


@router.get("", responses=responses())
async def list_credentials(request: Request) -> JsonResponse[RegistryCredentialsResponse]:
    """Return the status of each registry; an object, not a list."""
    credentials = context_of(request).related.registry_credentials
    return JsonResponse(credentials.all(principal_of(request)))


@router.put("/{registry}", responses=responses(404, 409, 412, headers=(ETAG,)))
async def put_credentials(
    request: Request,
    registry: Registry,
    body: PutRegistryCredentialsRequest,
    match: IfMatch = None,
) -> JsonResponse[RegistryStatusResponse]:
    """Create or replace the credentials of a registry."""
    async with AuditedAction(request, "registry-credential.put", registry):
        put = await context_of(request).related.registry_credentials.put(
            principal_of(request), registry, body, match
        )
    return record_response(put)


@router.delete("/{registry}", status_code=204, responses=responses(404, 409, 412, status=204))
async def delete_credentials(
    request: Request, registry: Registry, match: IfMatch = None
) -> Response:
    """Delete the credentials of a registry."""
    async with AuditedAction(request, "registry-credential.delete", registry, success=204):
        await context_of(request).related.registry_credentials.delete(
            principal_of(request), registry, match
        )
    return Response(status_code=204)
