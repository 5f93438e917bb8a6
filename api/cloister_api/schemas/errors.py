"""The one form of every error (spec 3.1, 20.8)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import ConfigDict

from cloister_api.schemas.response import ContainerUser, Omittable, ResponseBody

__all__ = ["Detail", "ErrorCode", "ErrorResponse"]

ErrorCode = Literal[
    "BAD_REQUEST",
    "UNAUTHORIZED",
    "PAYMENT_REQUIRED",
    "FORBIDDEN",
    "NOT_FOUND",
    "METHOD_NOT_ALLOWED",
    "REQUEST_TIMEOUT",
    "CONFLICT",
    "PRECONDITION_FAILED",
    "PAYLOAD_TOO_LARGE",
    "UNSUPPORTED_MEDIA_TYPE",
    "RATE_LIMITED",
    "HEADERS_TOO_LARGE",
    "INTERNAL_ERROR",
    "BAD_GATEWAY",
    "UNAVAILABLE",
]
"""Words for programs."""


@dataclass(frozen=True, slots=True)
class Detail:
    """One thing that is wrong with a request."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(use_attribute_docstrings=True)

    field: str
    """Field of the body or of the configuration file; empty for the whole."""
    code: str
    """CamelCase word for programs, such as `UnknownField` or `TagNotFound`."""
    message: str
    """Sentence for people: what is wrong and what to do."""


class ErrorResponse(ResponseBody):
    """Why something was not done."""

    error: str
    """Sentence for people."""
    code: ErrorCode
    """Word for programs."""
    request_id: str
    """Identifier of the request, also in the header X-Request-Id, the log and the audit trail."""
    used_by: Omittable[list[str]] = None
    """Names of the containers that keep something from being deleted, one for each."""
    used_by_containers: Omittable[list[ContainerUser]] = None
    """The same containers in the same order, with their identifiers."""
    details: Omittable[list[Detail]] = None
    """One entry for each problem: the first 50, then one that counts the rest."""
