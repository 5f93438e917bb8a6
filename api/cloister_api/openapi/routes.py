"""The description of the API, for programs and for people; without a key, outside of /api."""

from functools import lru_cache

import msgspec
from fastapi import APIRouter, Request, Response

from cloister_api.openapi.document import document
from cloister_api.openapi.page import page

__all__ = ["router"]

router = APIRouter(include_in_schema=False)


@router.get("/openapi.json")
async def get_openapi(request: Request) -> Response:
    """Answer the OpenAPI document."""
    described, _ = written(request.app.state.routers)
    return Response(described, media_type="application/json")


@router.get("/docs")
async def get_page(request: Request) -> Response:
    """Answer the same as a page."""
    _, shown = written(request.app.state.routers)
    headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return Response(shown, media_type="text/html; charset=utf-8", headers=headers)


@lru_cache(maxsize=1)
def written(routers: tuple[APIRouter, ...]) -> tuple[bytes, bytes]:
    """Answer the document and the page, made at the first request."""
    described = document(routers)
    return msgspec.json.encode(described), page(described).encode()
