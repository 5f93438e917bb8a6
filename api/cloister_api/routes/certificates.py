"""POST /api/shim/cert, and the certificate of an own authority (client contract, section 4)."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from cloister_api.cache import CachedEnclave
from cloister_api.errors import request_id_of
from cloister_api.routes.dependencies import answer, context_of
from cloister_api.routes.responses import says
from cloister_api.schemas.answers import Certificate
from cloister_api.schemas.answers import Queued as QueuedAnswer
from cloister_api.schemas.certificates import SignCertificateRequest
from cloister_api.services.certificates import PendingCertificate

__all__ = ["router"]

router = APIRouter(prefix="/api/shim", tags=["enclaves"])


class PemResponse(Response):
    """A certificate."""

    media_type = "application/x-pem-file"


def holder(request: Request) -> CachedEnclave:
    """Answer which enclave asks; refused before the fields of the body are looked at."""
    return context_of(request).certificates.holder(request.headers.get("authorization"))


@router.post(
    "/cert", responses={**says(Certificate, 401, 403, 404, 409), 202: {"model": QueuedAnswer}}
)
async def sign_certificate(
    request: Request,
    body: SignCertificateRequest,
    enclave: Annotated[CachedEnclave, Depends(holder)],
) -> Response:
    """Sign an enclave's request: 200 with the chain, or 202 while the order is queued."""
    service = context_of(request).certificates
    said = await service.request(enclave, body.csr, request_id_of(request))
    if isinstance(said, PendingCertificate):
        content = {"status": "queued", "message": said.message, "retry_after": said.retry_after}
        return answer(content, 202, {"retry-after": str(said.retry_after)})
    return answer({"certificate": said.certificate, "not_after": stamp(said.not_after)})


@router.get("/ca", response_class=PemResponse, responses=says(None, 404))
async def get_authority(request: Request) -> Response:
    """Answer the certificate that clients of enclaves are to trust, where an own one signs."""
    pem = context_of(request).certificates.authority_pem()
    return PemResponse(pem)


def stamp(moment: datetime) -> str:
    """Write a time as the API does."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
