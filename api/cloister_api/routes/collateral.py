"""GET /api/shim/collateral: what makers of processors publish, for enclaves (spec 26.4)."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from cloister_api.routes.dependencies import context_of
from cloister_api.routes.responses import ISSUER_CHAINS, responses
from cloister_api.routes.route_classes import TypedRoute

__all__ = ["PATH", "router"]

PATH = "/api/shim/collateral"

router = APIRouter(tags=["enclaves"], route_class=TypedRoute)


class CollateralResponse(Response):
    """An answer of a maker, byte for byte."""

    media_type = "application/octet-stream"


@router.get(
    PATH,
    response_class=CollateralResponse,
    responses=responses(400, 401, 403, 404, 429, 503, headers=ISSUER_CHAINS),
    openapi_extra={"security": [{"enclaveToken": []}]},
)
async def get_collateral(
    request: Request,
    address: Annotated[str, Query(max_length=512, description="Address of AMD or Intel.")],
) -> Response:
    """Return what AMD or Intel publishes at an address; the guard has authenticated the enclave."""
    answer = await context_of(request).collateral.get(address)
    return CollateralResponse(answer.body, headers=answer.headers)
