"""The model catalog, for everybody (spec 11, 27.9, 27.10)."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from cloister_api.routes.dependencies import context_of
from cloister_api.routes.responses import responses
from cloister_api.routes.route_classes import TypedRoute
from cloister_api.schemas.account_responses import ModelListResponse
from cloister_api.schemas.catalog import ModelRecord
from cloister_api.wire.json_response import JsonResponse

__all__ = ["router"]

router = APIRouter(tags=["catalog"], route_class=TypedRoute)

Paid = Annotated[bool | None, Query(description="Only those that cost, or that do not.")]
Chat = Annotated[bool | None, Query(description="Only those for chats, or the others.")]


@router.get("/api/config/models", responses=responses(400, 503))
async def list_catalog(
    request: Request, paid: Paid = None, chat: Chat = None
) -> JsonResponse[list[ModelRecord]]:
    """List the records of the catalog."""
    return JsonResponse.encoded(context_of(request).accounts.catalog.records(paid=paid, chat=chat))


@router.get("/v1/models", responses=responses(503))
async def list_models(request: Request) -> JsonResponse[ModelListResponse]:
    """List the models as clients of inference know it."""
    return JsonResponse.encoded(context_of(request).accounts.catalog.models)
