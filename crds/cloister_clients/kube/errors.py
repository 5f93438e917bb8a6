"""Refusals of the API server, as exceptions.

Made by `cloister_clients.kube.client` from the server's Status object (Kubernetes API conventions,
"Response Status Kind"); callers catch the class they can handle.
"""

from typing import Any

import msgspec

__all__ = [
    "AlreadyExists",
    "BadRequest",
    "Conflict",
    "Forbidden",
    "Gone",
    "Invalid",
    "KubeError",
    "NotFound",
    "Unauthorized",
    "Unavailable",
    "error_from_response",
    "error_from_status",
]

MAX_TEXT = 2_000

REFUSALS = frozenset({413, 422})
"""Status of an object that is too large, and of one that breaks a rule of its kind."""


class KubeError(Exception):
    """A request to the API server that did not succeed."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{reason or status}: {message}")
        self.status = status
        """HTTP status; 0 when the server could not be reached."""
        self.reason = reason
        """Machine-readable word of the server, such as ``AlreadyExists``; may be empty."""
        self.message = message
        """Sentence of the server."""
        self.details: dict[str, Any] = details or {}
        """Details of the server: name, kind, uid, causes; empty when it gave none."""
        self.retry_after = retry_after
        """Seconds after which the server accepts the next attempt; None when it did not say."""

    @property
    def refuses_object(self) -> bool:
        """Whether the object itself is permanently refused: it breaks a rule, or is too large.

        What is beyond etcd's limit, and not the API server's own, is reported as status 500.
        """
        return self.status in REFUSALS or "request is too large" in self.message


class BadRequest(KubeError):  # noqa: N818 - the names of the API's reasons
    """400: the request itself is wrong."""


class Unauthorized(KubeError):  # noqa: N818 - as above
    """401: the server does not know the client."""


class Forbidden(KubeError):  # noqa: N818 - as above
    """403: the client is not authorized, or an admission policy refuses."""


class NotFound(KubeError):  # noqa: N818 - as above
    """404: no such object, or no such kind."""


class Conflict(KubeError):  # noqa: N818 - as above
    """409: the object has changed, or another manager owns a field of an apply."""


class AlreadyExists(Conflict):
    """409 of a create: the name is taken."""


class Gone(KubeError):  # noqa: N818 - as above
    """410: the resourceVersion or continue token is too old; list again."""


class Invalid(KubeError):  # noqa: N818 - as above
    """422: the object breaks a rule of its kind."""


class Unavailable(KubeError):  # noqa: N818 - as above
    """429, 500, 503, 504, or no connection: the same request may work later."""


BY_STATUS: dict[int, type[KubeError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Unavailable,
    500: Unavailable,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def error_from_status(body: dict[str, Any], *, retry_after: float | None = None) -> KubeError:
    """Build the exception of a Status object.

    Parameters
    ----------
    body
        The Status object, as the server sent it in a response or in an ERROR event of a watch.
    retry_after
        Value of the Retry-After header in seconds; None to look into the details.
    """
    code = int(body.get("code") or 500)
    reason = str(body.get("reason") or "")
    details = body.get("details") or {}
    kind = BY_STATUS.get(code, KubeError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    elif reason == "Expired":
        kind = Gone
    if retry_after is None and details.get("retryAfterSeconds"):
        retry_after = float(details["retryAfterSeconds"])
    message = str(body.get("message") or reason or code)
    return kind(code, reason, message, details=details, retry_after=retry_after)


def error_from_response(
    status: int, content: bytes, *, retry_after: float | None = None
) -> KubeError:
    """Build the exception of a response that is not a success.

    Parameters
    ----------
    content
        Body: a Status object, or whatever a proxy in between wrote.
    retry_after
        Value of the Retry-After header in seconds; None if none was sent.
    """
    try:
        body = msgspec.json.decode(content)
    except msgspec.DecodeError:
        body = None
    if isinstance(body, dict) and body.get("kind") == "Status":
        return error_from_status({**body, "code": status}, retry_after=retry_after)
    text = content[:MAX_TEXT].decode(errors="replace").strip() or f"HTTP {status}"
    return BY_STATUS.get(status, KubeError)(status, "", text, retry_after=retry_after)
