"""/api/webhooks: signed events of others (spec 22.17)."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request

from cloister_api.errors import request_id_of
from cloister_api.routes.dependencies import context_of
from cloister_api.routes.responses import responses
from cloister_api.routes.route_classes import TypedRoute
from cloister_api.schemas.platform_responses import PaymentEventResponse, ReleaseEventResponse
from cloister_api.wire.json_response import JsonResponse

__all__ = ["RELEASES_PATH", "STRIPE_PATH", "router"]

RELEASES_PATH = "/api/webhooks/releases"
STRIPE_PATH = "/api/webhooks/stripe"

router = APIRouter(tags=["webhooks"], route_class=TypedRoute)

GithubEvent = Annotated[
    str | None, Header(alias="X-GitHub-Event", description="Kind of an event of GitHub.")
]
GiteaEvent = Annotated[
    str | None, Header(alias="X-Gitea-Event", description="Kind of an event of Gitea or Forgejo.")
]
GITEA_SIGNATURE = {
    "name": "X-Gitea-Signature",
    "in": "header",
    "required": False,
    "description": "HMAC-SHA256 of the body, in hexadecimal, in place of X-Hub-Signature-256.",
    "schema": {"type": "string", "title": "X-Gitea-Signature"},
}
"""Read by the guard, before the body is."""


def signed_event(scheme: str) -> dict[str, Any]:
    """Declare a body whose signature is checked before it is parsed."""
    content = {"application/json": {"schema": {"type": "object"}}}
    body = {"description": "The event as it is sent.", "required": True, "content": content}
    return {"security": [{scheme: []}], "requestBody": body}


@router.post(
    RELEASES_PATH,
    status_code=202,
    responses=responses(400, 401, 404, status=202),
    openapi_extra=signed_event("webhookSignature") | {"parameters": [GITEA_SIGNATURE]},
)
async def report_release(
    request: Request,
    github_event: GithubEvent = None,
    gitea_event: GiteaEvent = None,
) -> JsonResponse[ReleaseEventResponse]:
    """Take a release event of GitHub, Gitea or Forgejo."""
    checked = await context_of(request).release_webhooks.accept(
        await request.body(),
        github_event or gitea_event or "",
        request.scope["state"]["caller"],
    )
    return JsonResponse(ReleaseEventResponse(deployments=checked), 202)


@router.post(
    STRIPE_PATH,
    responses=responses(400, 401, 404, 502),
    openapi_extra=signed_event("stripeSignature"),
)
async def report_payment(request: Request) -> JsonResponse[PaymentEventResponse]:
    """Take an event of Stripe."""
    checked = await context_of(request).payments.accept_webhook(
        await request.body(), request.scope["state"]["caller"], request_id_of(request)
    )
    return JsonResponse(PaymentEventResponse(organizations=checked))
