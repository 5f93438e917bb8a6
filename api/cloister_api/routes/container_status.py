"""/api/containers/:id/status and /events: how a container is, and what happened to it."""

from fastapi import APIRouter, Request

from cloister_api.routes.dependencies import context_of, principal_of
from cloister_api.routes.parameters import ConsistencyToken, ContainerId
from cloister_api.routes.responses import ETAG, responses
from cloister_api.routes.route_classes import StrictRoute
from cloister_api.schemas.status_responses import ContainerStatusResponse, EventResponse
from cloister_api.wire.json_response import JsonResponse

__all__ = ["router"]

router = APIRouter(prefix="/api/containers", tags=["containers"], route_class=StrictRoute)


@router.get("/{container_id}/status", responses=responses(400, 404, headers=(ETAG,)))
async def get_status(
    request: Request, container_id: ContainerId, token: ConsistencyToken = None
) -> JsonResponse[ContainerStatusResponse]:
    """Return how a container is: conditions, what serves, what is on its way."""
    context = context_of(request)
    held = await context.reader.get(principal_of(request), container_id, token)
    record, version = context.statuses.of(held)
    return JsonResponse(record, headers={"etag": version})


@router.get("/{container_id}/events", responses=responses(400, 404))
async def list_events(
    request: Request, container_id: ContainerId, token: ConsistencyToken = None
) -> JsonResponse[list[EventResponse]]:
    """List what happened to a container in the last hour, newest first, at most 100 entries."""
    context = context_of(request)
    held = await context.reader.get(principal_of(request), container_id, token)
    return JsonResponse(await context.statuses.events(held))
