"""The OpenAPI document; without a key, outside of /api."""

from functools import lru_cache

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response

from cloister_api.openapi.document import document

router = APIRouter(include_in_schema=False)


@router.get("/openapi.json")
async def get_openapi(request: Request) -> Response:
    """Return the OpenAPI document."""
    return Response(encoded(request.app), media_type="application/json")


@lru_cache(maxsize=1)
def encoded(app: FastAPI) -> bytes:
    """Return the document, which the first request builds."""
    return msgspec.json.encode(document(app.state.routers))
