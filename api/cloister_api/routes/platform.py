"""The model catalog (spec 11), releases, signed webhooks (spec 22.17), liveness and readiness."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from starlette.datastructures import State

from cloister_api.errors import request_id_of
from cloister_api.routes.dependencies import StrictRoute, TypedRoute, context_of, principal_of
from cloister_api.routes.parameters import MAX_LIMIT, responses
from cloister_api.schemas.accounts import ModelListResponse
from cloister_api.schemas.catalog import (
    HealthResponse,
    ModelRecord,
    PaymentEventResponse,
    ReadinessResponse,
    ReleaseEventResponse,
)
from cloister_api.schemas.container_responses import ReleaseResponse
from cloister_api.wire import JsonResponse

catalog_router = APIRouter(tags=["catalog"], route_class=TypedRoute)

Paid = Annotated[bool | None, Query(description="Only those that cost, or that do not.")]
Chat = Annotated[bool | None, Query(description="Only those for chats, or the others.")]


@catalog_router.get("/api/config/models", responses=responses(400, 503))
async def list_catalog(
    request: Request, paid: Paid = None, chat: Chat = None
) -> JsonResponse[list[ModelRecord]]:
    """List the records of the catalog."""
    return JsonResponse.encoded(context_of(request).accounts.catalog.records(paid=paid, chat=chat))


@catalog_router.get("/v1/models", responses=responses(503))
async def list_models(request: Request) -> JsonResponse[ModelListResponse]:
    """List the models as clients of inference know it."""
    return JsonResponse.encoded(context_of(request).accounts.catalog.models)


health_router = APIRouter(tags=["health"], route_class=TypedRoute)


@health_router.get("/healthz", responses=responses())
async def get_health() -> JsonResponse[HealthResponse]:
    """Report that the process lives."""
    return JsonResponse(HealthResponse(status="ok"))


@health_router.get("/readyz", responses={**responses(), 503: {"model": ReadinessResponse}})
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
    """Return what requests would wait for; empty if they may be sent here."""
    if state.shutdown.begun:
        return ["the facade ends"]
    if state.context is None:
        return [state.waits_for()]
    return [
        str(reflector.failure or "not listed yet")
        for reflector in state.context.cache.all
        if not reflector.ready
    ]


releases_router = APIRouter(prefix="/api/releases", tags=["containers"], route_class=StrictRoute)

Repository = Annotated[str, Query(description="Repository, `owner/name`.")]
Newest = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Releases at most.")]


@releases_router.get("", responses=responses(400))
async def list_releases(
    request: Request, repo: Repository, limit: Newest = 20
) -> JsonResponse[list[ReleaseResponse]]:
    """List the newest releases of a repository, newest first, as they were in the last minute."""
    listed = await context_of(request).validation.releases(principal_of(request), repo, limit)
    return JsonResponse(listed)


RELEASES_PATH = "/api/webhooks/releases"
STRIPE_PATH = "/api/webhooks/stripe"

webhooks_router = APIRouter(tags=["webhooks"], route_class=TypedRoute)

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


@webhooks_router.post(
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


@webhooks_router.post(
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
