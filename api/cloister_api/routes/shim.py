"""/api/shim/validate-key: the key check of enclaves' shims (client contract, section 4).

Plain ASGI, because it stands on the path of every inference request: no model of the framework is
built for it. Its errors have the form of all errors.
"""

import msgspec
from fastapi import APIRouter
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from cloister_api.errors import ApiError, bad_request, error_response, unavailable

__all__ = ["CHECK", "CHECK_PATH", "CheckKeyRequest", "router"]

CHECK_PATH = "/api/shim/validate-key"
"""Where it is."""

VALID = b'{"valid":true}'
HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(VALID)).encode()),
]


class CheckKeyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of the key check."""

    api_key: str
    """The key as the client sent it."""
    domain: str | None = None
    """Host name that the enclave serves; None = only the key is checked."""
    requested_host: str | None = None
    """Host name that the client asked for; None = the same."""
    path: str | None = None
    """Path that the client asked for. Old shims send it; keys hold for every path."""


DECODER = msgspec.json.Decoder(CheckKeyRequest)


class KeyCheck:
    """The endpoint."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer whether a key may be used."""
        try:
            message = await receive()
            question = read(message.get("body", b""))
            context = scope["app"].state.context
            if not context.cache.ready:
                raise unavailable("the facade has not read the cluster yet; try again")
            await context.accounts.key_cache.check(
                question.api_key, question.domain, question.requested_host
            )
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
        400 when it is none; the message holds no value of it.
    """
    try:
        return DECODER.decode(body)
    except msgspec.ValidationError as error:
        raise bad_request(
            "", f"the body does not have the form that it must have: {error}"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request("", "the body is not JSON", code="InvalidJson") from error


router = APIRouter()
CHECK = Route(CHECK_PATH, KeyCheck(), methods=["POST"])
router.routes.append(CHECK)
