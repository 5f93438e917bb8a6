"""The model catalog, for everybody (client contract, section 4)."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from cloister_api.routes.request import answer, context_of

__all__ = ["router"]

router = APIRouter(tags=["catalog"])

Filter = Annotated[bool | None, Query()]


@router.get("/api/config/models")
async def list_catalog(request: Request, paid: Filter = None, chat: Filter = None) -> Response:
    """List the records of the catalog."""
    return answer(context_of(request).accounts.catalog.records(paid=paid, chat=chat))


@router.get("/v1/models")
async def list_models(request: Request) -> Response:
    """List the models as clients of inference know it."""
    return answer(context_of(request).accounts.catalog.models)
