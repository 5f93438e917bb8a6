"""Parameters, pagination (RFC 8288) and responses, declared once for all routes."""

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlencode

import msgspec
from fastapi import Depends, Header, Path, Query, Request

from cloister_api.errors import ApiError, bad_request
from cloister_api.schemas.forms import ErrorResponse
from cloister_api.usage.windows import WINDOWS, Window

MAX_LIMIT = 100
"""Most entries of a page."""
MAX_IDEMPOTENCY_KEY = 255
"""Most characters of an Idempotency-Key."""

ContainerId = Annotated[
    str, Path(description="Identifier of the container.", json_schema_extra={"format": "uuid"})
]
DeploymentId = Annotated[
    str, Path(description="Identifier of the deployment.", json_schema_extra={"format": "uuid"})
]
Name = Annotated[str, Path(description="Its name.", min_length=1)]

Limit = Annotated[
    int | None,
    Query(
        ge=1,
        le=MAX_LIMIT,
        description=f"Entries at most; left out: all, or with a cursor {MAX_LIMIT}.",
    ),
]
Cursor = Annotated[
    str | None, Query(description="Start of the page: from the header Link of the page before.")
]
Include = Annotated[
    Literal["replaced"] | None,
    Query(description="`replaced`: also containers that another one is replacing."),
]
TIME = Query(description="Window that ends now.", json_schema_extra={"enum": list(WINDOWS)})
Time = Annotated[str, TIME]
"""A window; judged by `window_of`, so that the error names the windows."""
OptionalTime = Annotated[str | None, TIME]
"""A window; None means all time."""

ConsistencyToken = Annotated[
    str | None,
    Header(
        alias="X-Consistency-Token",
        description="Version that the read must have seen, from the response to a write.",
        json_schema_extra={"pattern": "^[0-9]{1,18}$"},
    ),
]
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="ETag that the record must have; else 412, and nothing is changed.",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Text of your own: the same request with the same text returns what it made.",
        json_schema_extra={"minLength": 1, "maxLength": MAX_IDEMPOTENCY_KEY},
    ),
]


@dataclass(frozen=True, slots=True)
class VersionHeaders:
    """The versions that a change of a container is about."""

    token: str | None
    """Version that must have been seen (X-Consistency-Token); None means any."""
    match: str | None
    """Versions that may be changed (If-Match); None means any."""


async def version_headers(token: ConsistencyToken = None, match: IfMatch = None) -> VersionHeaders:
    """Return the version headers of a request."""
    return VersionHeaders(token, match)


Versions = Annotated[VersionHeaders, Depends(version_headers)]


def checked_idempotency_key(key: str | None) -> str | None:
    """Return the Idempotency-Key of a create; None if none was sent.

    Raises
    ------
    ApiError
        400 when it is empty or too long.
    """
    if key is not None and not 1 <= len(key) <= MAX_IDEMPOTENCY_KEY:
        raise bad_request(
            "Idempotency-Key",
            f"Idempotency-Key has 1 to {MAX_IDEMPOTENCY_KEY} characters; send another, or none",
        )
    return key


def window_of(time: str) -> Window:
    """Return the window that a query names.

    Raises
    ------
    ApiError
        400 when there is no such window.
    """
    if time not in WINDOWS:
        raise bad_request("time", f"time is one of {', '.join(WINDOWS)}")
    return WINDOWS[time]


SortKey = tuple[str, ...]
T = TypeVar("T")


def paginate(
    request: Request,
    entries: Iterable[T],
    sort_key: Callable[[T], SortKey],
    limit: int | None,
    cursor: str | None,
    kept: Mapping[str, str | None] | None = None,
) -> tuple[list[T], dict[str, str]]:
    """Return the requested page of a list, and the headers that lead to the next one.

    Parameters
    ----------
    entries
        The whole list, in the order in which it is returned without pages.
    sort_key
        Returns what orders the entries; no two have the same.
    limit
        Entries at most; None means all, or `MAX_LIMIT` with a cursor.
    cursor
        Start of the page; None means the beginning.
    kept
        Other parameters of the query that the next page needs too; None if there is none.

    Raises
    ------
    ApiError
        400 when the cursor is not of this API.
    """
    if limit is None and cursor is None:
        return list(entries), {}
    ordered = sorted(entries, key=sort_key)
    if cursor is not None:
        last = decode_cursor(cursor)
        ordered = [entry for entry in ordered if sort_key(entry) > last]
    size = limit or MAX_LIMIT
    if len(ordered) <= size:
        return ordered, {}
    page = ordered[:size]
    return page, next_page(request, size, sort_key(page[-1]), kept)


def next_page(
    request: Request, size: int, last: SortKey, kept: Mapping[str, str | None] | None = None
) -> dict[str, str]:
    """Return the header that leads to the next page.

    Parameters
    ----------
    last
        Sort key of the last entry of this one.
    kept
        Other parameters of the query that the next page needs too; None if there is none.
    """
    others = {name: value for name, value in (kept or {}).items() if value is not None}
    query = urlencode({**others, "limit": size, "cursor": encode_cursor(last)})
    return {"link": f'<{request.url.path}?{query}>; rel="next"'}


def encode_cursor(key: SortKey) -> str:
    """Return a sort key as a cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def decode_cursor(cursor: str) -> SortKey:
    """Return the sort key of a cursor.

    Raises
    ------
    ApiError
        400 when it is not of this API.
    """
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(text, type=SortKey)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise not_a_cursor() from error


def not_a_cursor() -> ApiError:
    """Build a 400: the cursor is not of this API."""
    return bad_request(
        "cursor", "cursor: is not one of this API; take it from the header Link of a list"
    )


@dataclass(frozen=True, slots=True)
class ResponseHeader:
    """A header of responses."""

    name: str
    """Name on the wire."""
    description: str
    """What it says."""
    minimum: int | None = None
    """Least value of a number; None if it is a text."""
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
    """Declare the responses of a route."""
    declared: dict[int | str, dict[str, Any]] = {status: {"headers": headers_of(*headers)}}
    return declared | {error: {"model": ErrorResponse} for error in errors}


def json_body(schema: str, description: str) -> dict[str, Any]:
    """Declare a body that a route parses itself.

    Parameters
    ----------
    schema
        Name of its schema among the components of the document.
    """
    form = {"$ref": f"#/components/schemas/{schema}"}
    content = {"application/json": {"schema": form}}
    return {"requestBody": {"description": description, "required": True, "content": content}}
