"""/api/deployments (spec 7, 23)."""

from fastapi import APIRouter, Request

from cloister_api.routes.audit import AuditedAction
from cloister_api.routes.dependencies import context_of, principal_of, record_response
from cloister_api.routes.pagination import paginate
from cloister_api.routes.parameters import Cursor, DeploymentId, IfMatch, Include, Limit
from cloister_api.routes.responses import ETAG, LINK, responses
from cloister_api.routes.route_classes import StrictRoute
from cloister_api.schemas.resource_responses import DeploymentResponse, DeploymentResultsResponse
from cloister_api.schemas.resources import ChangeDeploymentRequest, UpdateDeploymentRequest
from cloister_api.wire.json_response import JsonResponse

__all__ = ["router"]

router = APIRouter(prefix="/api/deployments", tags=["deployments"], route_class=StrictRoute)


@router.get("", responses=responses(400, headers=(LINK,)))
async def list_deployments(
    request: Request, limit: Limit = None, cursor: Cursor = None, include: Include = None
) -> JsonResponse[list[DeploymentResponse]]:
    """List the deployments of the organization, by repository."""
    records = context_of(request).related.deployments.all(
        principal_of(request), with_replaced=include is not None
    )
    kept = {"include": include}
    page, headers = paginate(request, records, lambda each: (each.repo,), limit, cursor, kept)
    return JsonResponse(page, headers=headers)


@router.patch("/{deployment_id}", responses=responses(404, 409, 412, headers=(ETAG,)))
async def change_deployment(
    request: Request,
    deployment_id: DeploymentId,
    body: ChangeDeploymentRequest,
    match: IfMatch = None,
) -> JsonResponse[DeploymentResponse]:
    """Change whether updates wait where a container says nothing."""
    async with AuditedAction(request, "deployment.change", deployment_id):
        changed = await context_of(request).related.deployments.change(
            principal_of(request),
            deployment_id,
            default_staging=body.default_staging,
            match=match,
        )
    return record_response(changed)


@router.post("/{deployment_id}/update", responses=responses(402, 404, 412))
async def update_deployment(
    request: Request,
    deployment_id: DeploymentId,
    body: UpdateDeploymentRequest,
    match: IfMatch = None,
) -> JsonResponse[DeploymentResultsResponse]:
    """Bring a tag to the containers of a deployment."""
    async with AuditedAction(request, "deployment.update", deployment_id):
        results = await context_of(request).related.deployments.update(
            principal_of(request), deployment_id, body, match
        )
    return JsonResponse(DeploymentResultsResponse(results=results))
