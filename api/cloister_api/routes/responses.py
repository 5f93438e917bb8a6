"""What routes declare of their responses, for the OpenAPI document (`cloister_api.openapi`).

The body of a success is the return annotation of a route (`JsonResponse`). Beside it a route names
the headers of its success and the errors of its own; the errors that every operation may have,
because of the guard in front of it or because it has a body, are added by `cloister_api.openapi`.
"""

from dataclasses import dataclass
from typing import Any

from cloister_api.schemas.errors import ErrorResponse

__all__ = [
    "CACHE_CONTROL",
    "CONSISTENCY_TOKEN",
    "ETAG",
    "ISSUER_CHAINS",
    "LINK",
    "LOCATION",
    "RATE_LIMIT",
    "RATE_LIMIT_POLICY",
    "REQUEST_ID",
    "RESPONSE_HEADERS",
    "RETRY_AFTER",
    "WWW_AUTHENTICATE",
    "ResponseHeader",
    "headers_of",
    "json_body",
    "responses",
]


@dataclass(frozen=True, slots=True)
class ResponseHeader:
    """A header of responses."""

    name: str
    """Name on the wire."""
    description: str
    """What it says."""
    minimum: int | None = None
    """Least value of a number; None = it is a text."""
    required: bool = False
    """Whether every response has it."""

    @property
    def described(self) -> dict[str, Any]:
        """Description in the document."""
        number = {"type": "integer", "minimum": self.minimum}
        schema = {"type": "string"} if self.minimum is None else number
        required = {"required": True} if self.required else {}
        return {"description": self.description, **required, "schema": schema}


REQUEST_ID = ResponseHeader(
    "X-Request-Id",
    "Identifier of the request: yours, if you sent one of letters, digits, `.`, `_` and `-`.",
    required=True,
)
RETRY_AFTER = ResponseHeader(
    "Retry-After", "Seconds after which the request may be tried again.", minimum=1
)
ETAG = ResponseHeader(
    "ETag", "Version of the record, for If-Match; one that begins with `W/` is for none."
)
RATE_LIMIT_POLICY = ResponseHeader(
    "RateLimit-Policy",
    "Requests `q` that may be made in `w` seconds; only where there is a limit.",
)
RATE_LIMIT = ResponseHeader(
    "RateLimit", "Requests `r` that are left, and seconds `t` until all are there again."
)
LINK = ResponseHeader(
    "Link", 'The next page of the list, with `rel="next"`; only where there is one.'
)
LOCATION = ResponseHeader("Location", "Path of the record.")
CONSISTENCY_TOKEN = ResponseHeader(
    "X-Consistency-Token",
    "Version of what was written; a read that sends it back, at any replica, sees at least that.",
)
ISSUER_CHAINS = tuple(
    ResponseHeader(name, "Certificates of the issuer in PEM, percent-encoded, as Intel sends them.")
    for name in (
        "TCB-Info-Issuer-Chain",
        "SGX-Enclave-Identity-Issuer-Chain",
        "SGX-PCK-CRL-Issuer-Chain",
    )
)
CACHE_CONTROL = ResponseHeader("Cache-Control", "`no-store`: the body holds values of keys.")
WWW_AUTHENTICATE = ResponseHeader("WWW-Authenticate", "`Bearer`.")
RESPONSE_HEADERS = (
    REQUEST_ID,
    RETRY_AFTER,
    ETAG,
    RATE_LIMIT_POLICY,
    RATE_LIMIT,
    LINK,
    LOCATION,
    CONSISTENCY_TOKEN,
    CACHE_CONTROL,
    WWW_AUTHENTICATE,
    *ISSUER_CHAINS,
)


def headers_of(*headers: ResponseHeader) -> dict[str, Any]:
    """Return the headers of a response in the document."""
    return {header.name: {"$ref": f"#/components/headers/{header.name}"} for header in headers}


def responses(
    *errors: int, status: int = 200, headers: tuple[ResponseHeader, ...] = ()
) -> dict[int | str, dict[str, Any]]:
    """Declare the responses of a route.

    Parameters
    ----------
    errors
        Statuses of errors that are its own.
    status
        Status of its success.
    headers
        Headers of its success.
    """
    declared: dict[int | str, dict[str, Any]] = {status: {"headers": headers_of(*headers)}}
    return declared | {error: {"model": ErrorResponse} for error in errors}


def json_body(schema: str, description: str) -> dict[str, Any]:
    """Declare a body that a route parses by itself.

    Parameters
    ----------
    schema
        Name of its schema among the components of the document.
    description
        What it is.
    """
    form = {"$ref": f"#/components/schemas/{schema}"}
    content = {"application/json": {"schema": form}}
    return {"requestBody": {"description": description, "required": True, "content": content}}
