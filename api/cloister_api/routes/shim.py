"""/api/shim/validate-key: the key check of enclaves' shims (spec 25.4).

Plain ASGI, because it is on the path of every inference request: the framework documents it and
does nothing else for it. Its errors have the form of all errors.
"""

from typing import cast

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from cloister_api.errors import ApiError, bad_request, error_response, too_deep
from cloister_api.routes.dependencies import running_context
from cloister_api.routes.responses import json_body, responses
from cloister_api.routes.route_classes import Handler, TypedRoute
from cloister_api.schemas.account_responses import KeyCheckResponse
from cloister_api.wire.json_response import JsonResponse, encode
from cloister_api.wire.strict_json import DepthError, decode
from cloister_clients.foreign_json import parse_apart

__all__ = ["CHECK", "CHECK_PATH", "CheckKeyRequest", "router"]

CHECK_PATH = "/api/shim/validate-key"

VALID = encode(KeyCheckResponse(valid=True))
HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(VALID)).encode()),
]


class CheckKeyRequest(msgspec.Struct):
    """Body of the key check; what a shim of a later release sends beside it is ignored."""

    api_key: str
    """The key as the client sent it."""
    domain: str | None = None
    """Host name that the enclave serves; None = only the key is checked."""
    requested_host: str | None = None
    """Host name that the client requested; None = the same."""
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

router = APIRouter(tags=["enclaves"])
router.routes.append(
    KeyCheckRoute(
        CHECK_PATH,
        check_key,
        methods=["POST"],
        tags=["enclaves"],
        responses=responses(400, 401, 402, 403, 429, 503),
        openapi_extra={"security": [], **json_body("CheckKeyRequest", "The request.")},
    )
)
