"""/api/webhooks: what others tell the facade, signed (client contract, section 1)."""

from fastapi import APIRouter, Request, Response

from cloister_api.routes.request import answer, context_of

__all__ = ["router"]

router = APIRouter(prefix="/api/webhooks", tags=["webhooks"])


@router.post("/releases", status_code=202)
async def take_release(request: Request) -> Response:
    """Take a release event of GitHub, Gitea or Forgejo."""
    headers = request.headers
    event = headers.get("x-github-event") or headers.get("x-gitea-event") or ""
    signature = headers.get("x-hub-signature-256") or headers.get("x-gitea-signature") or ""
    looking = await context_of(request).releases.take(await request.body(), event, signature)
    return answer({"deployments": looking}, 202)
