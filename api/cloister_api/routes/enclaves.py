"""What enclaves request.

The key check of their shims (spec 25.4), certificates and collateral (spec 26).
"""

from typing import Annotated, cast

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from cloister_api.cache import CachedEnclave
from cloister_api.errors import ApiError, bad_request, error_response, request_id_of, too_deep
from cloister_api.records.container import timestamp
from cloister_api.routes.dependencies import Handler, TypedRoute, context_of, running_context
from cloister_api.routes.parameters import (
    ISSUER_CHAINS,
    RETRY_AFTER,
    headers_of,
    json_body,
    responses,
)
from cloister_api.schemas.accounts import KeyCheckResponse
from cloister_api.schemas.catalog import CertificateResponse, QueuedCertificateResponse
from cloister_api.schemas.keys import SignCertificateRequest
from cloister_api.services.enclaves import PendingCertificate
from cloister_api.wire import DepthError, JsonResponse, decode, encode
from cloister_clients.foreign_json import parse_apart

CHECK_PATH = "/api/shim/validate-key"

VALID = encode(KeyCheckResponse(valid=True))
HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(VALID)).encode()),
]


class CheckKeyRequest(msgspec.Struct):
    """Body of the key check; further fields, of a shim of a later release, are ignored."""

    api_key: str
    """The key as the client sent it."""
    domain: str | None = None
    """Host name that the enclave serves; None means only the key is checked."""
    requested_host: str | None = None
    """Host name that the client requested; None means the same."""
    path: str | None = None
    """Path that the client requested. Old shims send it; keys hold for every path."""


DECODER = msgspec.json.Decoder(CheckKeyRequest)


class KeyCheckApp:
    """The endpoint, an ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send whether a key may be used."""
        try:
            message = await receive()
            body = await parse_apart(read, message.get("body", b""))
            context = running_context(scope["app"])
            await context.accounts.key_cache.check(body.api_key, body.domain, body.requested_host)
        except ApiError as error:
            await error_response(error, scope["state"]["request_id"])(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await send({"type": "http.response.body", "body": VALID})


def read(body: bytes) -> CheckKeyRequest:
    """Read the body.

    Raises
    ------
    ApiError
        400 when it is not one; the message holds no value of it.
    """
    try:
        return decode(DECODER, body)
    except DepthError as error:
        raise too_deep(error) from error
    except msgspec.ValidationError as error:
        raise bad_request(
            "", f"the body does not have the form that it must have: {error}"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request("", "the body is not JSON", code="InvalidJson") from error


class KeyCheckRoute(TypedRoute):
    """The route of the key check, with nothing of the framework around the endpoint."""

    @override
    def get_route_handler(self) -> Handler:
        """Return the handler of a request, which leads to the ASGI application itself."""

        async def respond(_: Request) -> Response:
            # The framework calls a response as the ASGI application that it is, and nothing more.
            return cast("Response", KeyCheckApp())

        return respond


async def check_key() -> JsonResponse[KeyCheckResponse]:
    """Return whether a regular key may be used; only the status counts."""
    return JsonResponse(KeyCheckResponse(valid=True))


CHECK = Route(CHECK_PATH, KeyCheckApp(), methods=["POST"])
"""Its route, for the guard, which takes it past the framework."""

shim_router = APIRouter(tags=["enclaves"])
shim_router.routes.append(
    KeyCheckRoute(
        CHECK_PATH,
        check_key,
        methods=["POST"],
        tags=["enclaves"],
        responses=responses(400, 401, 402, 403, 429, 503),
        openapi_extra={"security": [], **json_body("CheckKeyRequest", "The request.")},
    )
)


PATH = "/api/shim/cert"
COLLATERAL_PATH = "/api/shim/collateral"

certificates_router = APIRouter(tags=["enclaves"], route_class=TypedRoute)

QUEUED = {"model": QueuedCertificateResponse, "headers": headers_of(RETRY_AFTER)}


class PemResponse(Response):
    """A certificate."""

    media_type = "application/x-pem-file"


class CollateralResponse(Response):
    """A vendor's response, byte for byte."""

    media_type = "application/octet-stream"


async def enclave_of(request: Request) -> CachedEnclave:
    """Return the enclave that a token is of; the guard has authenticated it."""
    enclave: CachedEnclave = request.scope["state"]["caller"]
    return enclave


@certificates_router.post(
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


@certificates_router.get("/api/shim/ca", response_class=PemResponse, responses=responses(404, 503))
async def get_authority(request: Request) -> Response:
    """Return the certificate that clients of enclaves must trust, where an own one signs."""
    return PemResponse(context_of(request).certificates.authority_pem())


@certificates_router.get(
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
