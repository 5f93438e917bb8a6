"""/api/webhooks: what others tell the facade, signed (client contract, section 1)."""

from fastapi import APIRouter, Request, Response

from cloister_api.errors import request_id_of
from cloister_api.routes.dependencies import answer, context_of
from cloister_api.routes.responses import says
from cloister_api.schemas.answers import PaymentEvent, ReleaseEvent

__all__ = ["router"]

router = APIRouter(prefix="/api/webhooks", tags=["webhooks"])


@router.post("/releases", status_code=202, responses=says(ReleaseEvent, 400, 401, 404, status=202))
async def report_release(request: Request) -> Response:
    """Take a release event of GitHub, Gitea or Forgejo."""
    headers = request.headers
    event = headers.get("x-github-event") or headers.get("x-gitea-event") or ""
    signature = headers.get("x-hub-signature-256") or headers.get("x-gitea-signature") or ""
    looking = await context_of(request).release_webhooks.accept(
        await request.body(), event, signature
    )
    return answer({"deployments": looking}, 202)


@router.post("/stripe", responses=says(PaymentEvent, 400, 401, 404, 502))
async def report_payment(request: Request) -> Response:
    """Take an event of Stripe."""
    looked = await context_of(request).payments.accept_webhook(
        await request.body(), request.headers.get("stripe-signature", ""), request_id_of(request)
    )
    return answer({"organizations": looked})
