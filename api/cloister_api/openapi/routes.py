"""The OpenAPI document and its page; without a key, outside of /api."""

from functools import lru_cache

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response

from cloister_api.openapi.document import document
from cloister_api.openapi.page import page

__all__ = ["router"]

router = APIRouter(include_in_schema=False)


@router.get("/openapi.json")
async def get_openapi(request: Request) -> Response:
    """Return the OpenAPI document."""
    described, _ = encoded(request.app)
    return Response(described, media_type="application/json")


@router.get("/docs")
async def get_page(request: Request) -> Response:
    """Return the document as a page."""
    _, shown = encoded(request.app)
    headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return Response(shown, media_type="text/html; charset=utf-8", headers=headers)


@lru_cache(maxsize=1)
def encoded(app: FastAPI) -> tuple[bytes, bytes]:
    """Return the document and the page, which the first request builds."""
    described = document(app.state.routers)
    return msgspec.json.encode(described), page(described).encode()
