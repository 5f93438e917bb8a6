"""Whether the process lives and whether it can answer; without a key, outside of /api."""

from fastapi import APIRouter, Request, Response

from cloister_api.routes.dependencies import answer
from cloister_api.routes.responses import says
from cloister_api.schemas.answers import Health, Readiness

__all__ = ["router"]

router = APIRouter(tags=["health"])


@router.get("/healthz", responses=says(Health))
async def get_health() -> Response:
    """Answer that the process lives."""
    return answer({"status": "ok"})


@router.get("/readyz", responses={**says(Health), 503: {"model": Readiness}})
async def get_readiness(request: Request) -> Response:
    """Answer whether requests may be sent here."""
    if request.app.state.ending.begun:
        return answer({"status": "ending"}, 503)
    context = request.app.state.context
    missing = [
        str(reflector.failure or "not listed yet")
        for reflector in context.cache.all
        if not reflector.ready
    ]
    if missing:
        return answer({"status": "waiting", "for": missing}, 503)
    return answer({"status": "ok"})
