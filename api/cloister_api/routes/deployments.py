"""/api/deployments (spec, "Deployments"; client contract, section 2)."""

from fastapi import APIRouter, Request, Response

from cloister_api.routes.dependencies import (
    Act,
    answer,
    context_of,
    match_of,
    principal_of,
    recorded_answer,
)
from cloister_api.routes.pagination import Cursor, Limit, piece
from cloister_api.routes.responses import DeploymentId, says
from cloister_api.routes.strict import StrictRoute
from cloister_api.schemas.answers import Deployment, DeploymentResults
from cloister_api.schemas.resources import ChangeDeploymentRequest, UpdateDeploymentRequest

__all__ = ["router"]

router = APIRouter(prefix="/api/deployments", tags=["deployments"], route_class=StrictRoute)


@router.get("", responses=says(list[Deployment], 400))
async def list_deployments(
    request: Request, limit: Limit = None, cursor: Cursor = None
) -> Response:
    """List the deployments of the organization, by repository."""
    records = context_of(request).related.deployments.all(principal_of(request))
    shown, headers = piece(request, records, lambda each: (each["repo"],), limit, cursor)
    return answer(shown, headers=headers)


@router.patch("/{deployment_id}", responses=says(Deployment, 404, 409, 412))
async def change_deployment(
    request: Request, deployment_id: DeploymentId, body: ChangeDeploymentRequest
) -> Response:
    """Change whether updates wait where a container says nothing."""
    async with Act(request, "deployment.change", deployment_id):
        changed = await context_of(request).related.deployments.change(
            principal_of(request),
            deployment_id,
            default_staging=body.default_staging,
            match=match_of(request),
        )
    return recorded_answer(changed)


@router.post("/{deployment_id}/update", responses=says(DeploymentResults, 402, 404, 412))
async def update_deployment(
    request: Request, deployment_id: DeploymentId, body: UpdateDeploymentRequest
) -> Response:
    """Bring a tag to the containers of a deployment."""
    async with Act(request, "deployment.update", deployment_id):
        results = await context_of(request).related.deployments.update(
            principal_of(request), deployment_id, body, match_of(request)
        )
    return answer({"results": results})
