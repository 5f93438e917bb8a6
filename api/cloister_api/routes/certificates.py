"""What enclaves request with their tokens: certificates, collateral (spec 26.1, 26.4)."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from cloister_api.cache import CachedEnclave
from cloister_api.errors import request_id_of
from cloister_api.records.timestamps import timestamp
from cloister_api.routes.dependencies import context_of
from cloister_api.routes.responses import ISSUER_CHAINS, RETRY_AFTER, headers_of, responses
from cloister_api.routes.route_classes import TypedRoute
from cloister_api.schemas.certificates import SignCertificateRequest
from cloister_api.schemas.platform_responses import CertificateResponse, QueuedCertificateResponse
from cloister_api.services.enclaves.certificates import PendingCertificate
from cloister_api.wire.json_response import JsonResponse

__all__ = ["COLLATERAL_PATH", "PATH", "router"]

PATH = "/api/shim/cert"
COLLATERAL_PATH = "/api/shim/collateral"

router = APIRouter(tags=["enclaves"], route_class=TypedRoute)

QUEUED = {"model": QueuedCertificateResponse, "headers": headers_of(RETRY_AFTER)}


class PemResponse(Response):
    """A certificate."""

    media_type = "application/x-pem-file"


class CollateralResponse(Response):
    """An answer of a maker, byte for byte."""

    media_type = "application/octet-stream"


async def enclave_of(request: Request) -> CachedEnclave:
    """Return the enclave that a token is of; the guard has authenticated it."""
    enclave: CachedEnclave = request.scope["state"]["caller"]
    return enclave


@router.post(
    PATH,
    responses={**responses(401, 403, 404, 409), 202: QUEUED},
    openapi_extra={"security": [{"enclaveToken": []}]},
)
async def sign_certificate(
    request: Request,
    body: SignCertificateRequest,
    enclave: Annotated[CachedEnclave, Depends(enclave_of)],
) -> JsonResponse[CertificateResponse] | JsonResponse[QueuedCertificateResponse]:
    """Sign an enclave's request: 200 with the chain, or 202 while the order is queued."""
    service = context_of(request).certificates
    result = await service.request(enclave, body.csr, request_id_of(request))
    if isinstance(result, PendingCertificate):
        queued = QueuedCertificateResponse(
            status="queued", message=result.message, retry_after=result.retry_after
        )
        return JsonResponse(queued, 202, {"retry-after": str(result.retry_after)})
    return JsonResponse(
        CertificateResponse(certificate=result.certificate, not_after=timestamp(result.not_after))
    )


@router.get("/api/shim/ca", response_class=PemResponse, responses=responses(404, 503))
async def get_authority(request: Request) -> Response:
    """Return the certificate that clients of enclaves are to trust, where an own one signs."""
    return PemResponse(context_of(request).certificates.authority_pem())


@router.get(
    COLLATERAL_PATH,
    response_class=CollateralResponse,
    responses=responses(400, 401, 403, 404, 429, 503, headers=ISSUER_CHAINS),
    openapi_extra={"security": [{"enclaveToken": []}]},
)
async def get_collateral(
    request: Request,
    enclave: Annotated[CachedEnclave, Depends(enclave_of)],
    address: Annotated[str, Query(max_length=512, description="Address of AMD or Intel.")],
) -> Response:
    """Return what AMD or Intel publishes at an address; the guard has authenticated the enclave."""
    answer = await context_of(request).collateral.get(enclave.uid, address)
    return CollateralResponse(answer.body, headers=answer.headers)
