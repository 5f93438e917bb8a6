"""The model catalog, for everybody (client contract, section 4)."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from cloister_api.routes.dependencies import answer, context_of
from cloister_api.routes.responses import says
from cloister_api.schemas.account_answers import ModelList
from cloister_api.schemas.catalog import ModelRecord

__all__ = ["router"]

router = APIRouter(tags=["catalog"])

Paid = Annotated[bool | None, Query(description="Only those that cost, or that do not.")]
Chat = Annotated[bool | None, Query(description="Only those for chats, or the others.")]


@router.get("/api/config/models", responses=says(list[ModelRecord], 400))
async def list_catalog(request: Request, paid: Paid = None, chat: Chat = None) -> Response:
    """List the records of the catalog."""
    return answer(context_of(request).accounts.catalog.records(paid=paid, chat=chat))


@router.get("/v1/models", responses=says(ModelList))
async def list_models(request: Request) -> Response:
    """List the models as clients of inference know it."""
    return answer(context_of(request).accounts.catalog.models)
