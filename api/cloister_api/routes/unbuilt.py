"""Paths of the specification whose part is not built yet: refused by name, never passed over.

A line goes when its part is built.
"""

from fastapi import APIRouter, Request, Response

from cloister_api.errors import ApiError

__all__ = ["UNBUILT", "router"]

UNBUILT: tuple[tuple[str, str], ...] = (
    ("GET", "/api/containers/{container_id}/metrics"),
    ("POST", "/api/webhooks/stripe"),
)
"""Method and path of each."""

router = APIRouter(include_in_schema=False)


async def refuse(request: Request) -> Response:
    """Refuse by name.

    Raises
    ------
    ApiError
        501 always.
    """
    raise ApiError(
        501,
        "NotSupportedYet",
        f"{request.method} {request.scope['route'].path} is part of the API and is not built yet",
    )


for method, path in UNBUILT:
    router.add_api_route(path, refuse, methods=[method], response_model=None)
