"""Parameters of path, query and header, declared once and used by every route that reads them.

Their descriptions and bounds are those of the OpenAPI document. What the framework could only
refuse with a general message is judged by the functions here.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Header, Path, Query

from cloister_api.errors import bad_request
from cloister_api.usage.windows import WINDOWS, Window

__all__ = [
    "ConsistencyToken",
    "ContainerId",
    "Cursor",
    "DeploymentId",
    "IdempotencyKey",
    "IfMatch",
    "Include",
    "Limit",
    "Name",
    "OptionalTime",
    "Time",
    "VersionHeaders",
    "Versions",
    "checked_idempotency_key",
    "window_of",
]

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
"""A window; None = all time."""

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
    """Version that must have been seen (X-Consistency-Token); None = any."""
    match: str | None
    """Versions that may be changed (If-Match); None = any."""


async def version_headers(token: ConsistencyToken = None, match: IfMatch = None) -> VersionHeaders:
    """Return the version headers of a request."""
    return VersionHeaders(token, match)


Versions = Annotated[VersionHeaders, Depends(version_headers)]


def checked_idempotency_key(key: str | None) -> str | None:
    """Return the Idempotency-Key of a create; None = none was sent.

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
