"""Liveness and readiness of the process; without a key, outside of /api."""

from fastapi import APIRouter, Request

from cloister_api.routes.responses import responses
from cloister_api.routes.route_classes import TypedRoute
from cloister_api.schemas.platform_responses import HealthResponse, ReadinessResponse
from cloister_api.wire.json_response import JsonResponse

__all__ = ["router"]

router = APIRouter(tags=["health"], route_class=TypedRoute)


@router.get("/healthz", responses=responses())
async def get_health() -> JsonResponse[HealthResponse]:
    """Report that the process lives."""
    return JsonResponse(HealthResponse(status="ok"))


@router.get("/readyz", responses={**responses(), 503: {"model": ReadinessResponse}})
async def get_readiness(
    request: Request,
) -> JsonResponse[HealthResponse] | JsonResponse[ReadinessResponse]:
    """Report whether requests may be sent here."""
    if request.app.state.shutdown.begun:
        return JsonResponse(ReadinessResponse(status="ending"), 503)
    context = request.app.state.context
    missing = [
        str(reflector.failure or "not listed yet")
        for reflector in context.cache.all
        if not reflector.ready
    ]
    if missing:
        return JsonResponse(ReadinessResponse(status="waiting", for_=missing), 503)
    return JsonResponse(HealthResponse(status="ok"))
