"""/api/releases: what a container may run."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from cloister_api.routes.dependencies import context_of, principal_of
from cloister_api.routes.parameters import MAX_LIMIT
from cloister_api.routes.responses import responses
from cloister_api.routes.route_classes import StrictRoute
from cloister_api.schemas.container_responses import ReleaseResponse
from cloister_api.wire.json_response import JsonResponse

__all__ = ["router"]

router = APIRouter(prefix="/api/releases", tags=["containers"], route_class=StrictRoute)

Repository = Annotated[str, Query(description="Repository, `owner/name`.")]
Newest = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Releases at most.")]


@router.get("", responses=responses(400))
async def list_releases(
    request: Request, repo: Repository, limit: Newest = 20
) -> JsonResponse[list[ReleaseResponse]]:
    """List the newest releases of a repository, newest first, as they were in the last minute."""
    listed = await context_of(request).validation.releases(principal_of(request), repo, limit)
    return JsonResponse(listed)
