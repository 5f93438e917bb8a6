"""Liveness and readiness of the process; without a key, outside of /api."""

from fastapi import APIRouter, Request
from starlette.datastructures import State

from cloister_api.routes.responses import responses
from cloister_api.routes.route_classes import TypedRoute
from cloister_api.schemas.platform_responses import HealthResponse, ReadinessResponse
from cloister_api.wire.json_response import JsonResponse

__all__ = ["router", "unready_reasons"]

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
    state = request.app.state
    if state.shutdown.begun:
        return JsonResponse(ReadinessResponse(status="ending"), 503)
    if missing := unready_reasons(state):
        return JsonResponse(ReadinessResponse(status="waiting", for_=missing), 503)
    return JsonResponse(HealthResponse(status="ok"))


def unready_reasons(state: State) -> list[str]:
    """Return what requests would have to wait for; empty = they may be sent here."""
    if state.shutdown.begun:
        return ["the facade ends"]
    if state.context is None:
        return [state.waits_for()]
    return [
        str(reflector.failure or "not listed yet")
        for reflector in state.context.cache.all
        if not reflector.ready
    ]
