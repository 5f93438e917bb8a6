"""Every error of the API, for its description."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from cloister_api.routes.responses import (
    RATE_LIMIT,
    RATE_LIMIT_POLICY,
    REQUEST_ID,
    RETRY_AFTER,
    WWW_AUTHENTICATE,
    headers_of,
)

__all__ = ["KINDS", "ErrorKind", "component"]

EXAMPLE_ID = "0f0c6a3e-5b0e-4c79-9d1c-2f5f6f0f7a11"


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """An error by its status."""

    code: str
    """Word for programs."""
    meaning: str
    """When it occurs."""
    example: str
    """A message."""
    more: dict[str, Any] | None = None
    """Further fields of the example; None = none."""

    @property
    def body(self) -> dict[str, Any]:
        """The example as it is sent."""
        head = {"error": self.example, "code": self.code, "request_id": EXAMPLE_ID}
        return {**head, **(self.more or {})}


_TAG = "tag: the repository acme/web has no release v9; publish it or name another tag"
KINDS: dict[int, ErrorKind] = {
    400: ErrorKind(
        "BAD_REQUEST",
        "A field is wrong, missing or unknown, or names what cannot be used; `details` has an "
        "entry for each.",
        _TAG,
        {"details": [{"field": "tag", "code": "TagNotFound", "message": _TAG}]},
    ),
    401: ErrorKind(
        "UNAUTHORIZED",
        "No key, an unknown, malformed or expired one, or a wrong signature.",
        "invalid or expired admin API key; send Authorization: Bearer admin_… of this installation",
    ),
    402: ErrorKind(
        "PAYMENT_REQUIRED",
        "No active container subscription, or no active token billing.",
        "the organization has no active container subscription; subscribe, then try again",
    ),
    403: ErrorKind(
        "FORBIDDEN",
        "The key was revoked, an entitlement is missing, or the quota is reached.",
        "quota reached: the organization may have 10 containers (stopped ones count); "
        "delete one or ask the administrator for more",
    ),
    404: ErrorKind(
        "NOT_FOUND",
        "It does not exist; what another organization has is not told apart from what nobody has.",
        "container not found",
    ),
    405: ErrorKind(
        "METHOD_NOT_ALLOWED",
        "The path does not have this method.",
        "the path does not have this method; the Allow header lists those it has",
    ),
    408: ErrorKind(
        "REQUEST_TIMEOUT",
        "The body took too long to arrive.",
        "the body did not arrive within 10 seconds; send it again",
    ),
    409: ErrorKind(
        "CONFLICT",
        "A name is taken, a state forbids the action, something is in use (`used_by` and "
        "`used_by_containers` name the containers), or a GitOps tool manages the field.",
        "secret OPENAI_API_KEY is used by web; relaunch or delete these containers without it",
        {
            "used_by": ["web"],
            "used_by_containers": [
                {"id": "7d3c1a52-8a1e-4e0f-9b57-0c9d3a2f4e10", "name": "web", "debug": False}
            ],
        },
    ),
    412: ErrorKind(
        "PRECONDITION_FAILED",
        "The record is no longer the one that If-Match names.",
        "the container was changed since: it is no longer what If-Match names; read it again",
    ),
    413: ErrorKind(
        "PAYLOAD_TOO_LARGE",
        "The body is too large.",
        "the body is larger than 1048576 bytes; send less",
    ),
    415: ErrorKind(
        "UNSUPPORTED_MEDIA_TYPE",
        "The body is not declared as JSON.",
        "send the body with the header Content-Type: application/json",
    ),
    429: ErrorKind(
        "RATE_LIMITED",
        "More requests than the limits allow; Retry-After says when to try again.",
        "rate limit of this key exceeded; try again in 2 seconds",
    ),
    431: ErrorKind(
        "HEADERS_TOO_LARGE",
        "The headers are too large; sent for any path.",
        "the headers are larger than 65536 bytes; send fewer",
    ),
    500: ErrorKind(
        "INTERNAL_ERROR",
        "A fault of the facade; the log has the rest under the request id.",
        "the facade failed; name the request_id to the administrator",
    ),
    502: ErrorKind(
        "BAD_GATEWAY",
        "The payment processor refuses, or its response is not understood.",
        "the payment processor refuses to tell; the administrator finds the reason in the log",
    ),
    503: ErrorKind(
        "UNAVAILABLE",
        "The cluster, a source or a registry does not answer; Retry-After says when to try again.",
        "the cluster does not answer at present; try again",
    ),
}
"""By status."""
HEADERS = {401: (WWW_AUTHENTICATE,), 429: (RETRY_AFTER,), 503: (RETRY_AFTER,)}
"""Headers of errors, by status."""


def component(status: int) -> tuple[str, dict[str, Any]]:
    """Return the name of an error among the shared responses, and its description.

    Parameters
    ----------
    status
        Its HTTP status.
    """
    kind = KINDS[status]
    response = {
        "description": kind.meaning,
        "headers": headers_of(REQUEST_ID, *HEADERS.get(status, ()), RATE_LIMIT_POLICY, RATE_LIMIT),
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/ErrorResponse"},
                "example": kind.body,
            }
        },
    }
    return HTTPStatus(status).phrase.title().replace(" ", ""), response
