"""Whether the process lives and whether it can answer; without a key, outside of /api."""

from fastapi import APIRouter, Request, Response

from cloister_api.routes.request import answer

__all__ = ["router"]

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def alive() -> Response:
    """Answer that the process lives."""
    return answer({"status": "ok"})


@router.get("/readyz")
async def ready(request: Request) -> Response:
    """Answer whether every copy of the cluster's objects has been filled."""
    context = request.app.state.context
    missing = [
        str(reflector.failure or "not listed yet")
        for reflector in context.views.all
        if not reflector.ready
    ]
    if missing:
        return answer({"status": "waiting", "for": missing}, 503)
    return answer({"status": "ok"})
