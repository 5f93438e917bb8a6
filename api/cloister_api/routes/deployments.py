"""/api/deployments (spec, "Deployments"; client contract, section 2)."""

from fastapi import APIRouter, Request, Response

from cloister_api.routes.request import Act, answer, context_of, principal_of
from cloister_api.schemas.resources import DeploymentChange, DeploymentUpdate

__all__ = ["router"]

router = APIRouter(prefix="/api/deployments", tags=["deployments"])


@router.get("")
async def list_deployments(request: Request) -> Response:
    """List the deployments of the organization, by repository."""
    return answer(context_of(request).related.deployments.all(principal_of(request)))


@router.patch("/{deployment_id}")
async def change_deployment(
    request: Request, deployment_id: str, body: DeploymentChange
) -> Response:
    """Change whether updates wait where a container says nothing."""
    async with Act(request, "deployment.change", deployment_id):
        changed = await context_of(request).related.deployments.change(
            principal_of(request), deployment_id, default_staging=body.default_staging
        )
    return answer(changed)


@router.post("/{deployment_id}/update")
async def update_deployment(
    request: Request, deployment_id: str, body: DeploymentUpdate
) -> Response:
    """Bring a tag to the containers of a deployment."""
    async with Act(request, "deployment.update", deployment_id):
        results = await context_of(request).related.deployments.update(
            principal_of(request), deployment_id, body
        )
    return answer({"results": results})
