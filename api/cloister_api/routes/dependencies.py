"""What every route takes from a request, and the audit row that every write leaves."""

from types import TracebackType
from typing import Any, Self

import msgspec
from fastapi import Depends, Request, Response

from cloister_api.auth.authenticator import Principal
from cloister_api.context import Context
from cloister_api.errors import ApiError, bad_request, from_kube
from cloister_api.ledger.audit import AuditRow
from cloister_api.schemas.envelope import EmptyRequest
from cloister_api.services.preconditions import VersionedRecord
from cloister_api.usage.windows import WINDOWS, Window
from cloister_clients.kube import KubeError

__all__ = [
    "NO_FIELDS",
    "TOKEN",
    "Act",
    "answer",
    "context_of",
    "match_of",
    "principal_of",
    "recorded_answer",
    "retry_key_of",
    "token_of",
    "window_of",
]

LONGEST_RETRY_KEY = 255
"""Most characters of an Idempotency-Key."""
TOKEN = "x-consistency-token"  # noqa: S105 - the name of a header
NOTHING = EmptyRequest()


async def no_fields(body: EmptyRequest = NOTHING) -> None:
    """Refuse a body that says something which nothing would read."""


NO_FIELDS = (Depends(no_fields),)
"""Dependencies of a POST that takes no fields: unknown ones are refused there too (client contract,
general rules)."""


def context_of(request: Request) -> Context:
    """Answer what the facade has."""
    context: Context = request.app.state.context
    return context


def principal_of(request: Request) -> Principal:
    """Answer who asks; the middleware has seen to it."""
    principal: Principal = request.scope["state"]["principal"]
    return principal


def token_of(request: Request) -> str | None:
    """Answer the version that a read must have seen; None = none was named."""
    return request.headers.get(TOKEN)


def match_of(request: Request) -> str | None:
    """Answer the header If-Match; None = any version may be changed."""
    return request.headers.get("if-match")


def retry_key_of(request: Request) -> str | None:
    """Answer the Idempotency-Key of a create; None = none was sent.

    Raises
    ------
    ApiError
        400 when it is empty or too long.
    """
    key = request.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= LONGEST_RETRY_KEY:
        raise bad_request(
            "Idempotency-Key",
            f"Idempotency-Key has 1 to {LONGEST_RETRY_KEY} characters; send another, or none",
        )
    return key


def window_of(time: str) -> Window:
    """Answer the window that a query names.

    Raises
    ------
    ApiError
        400 when there is no such window.
    """
    if time not in WINDOWS:
        raise bad_request("time", f"time is one of {', '.join(WINDOWS)}")
    return WINDOWS[time]


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Build an answer from JSON data, or from bytes that are JSON already."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Response(content, status, headers=headers, media_type="application/json")


def recorded_answer(
    recorded: VersionedRecord, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Build the answer of one record, with its version as ETag."""
    return answer(recorded.record, status, {**(headers or {}), "etag": f'"{recorded.version}"'})


class Act:
    """A write in progress: leaving the block writes its audit row, whatever came of it."""

    def __init__(self, request: Request, action: str, target: str, *, success: int = 200) -> None:
        self._context = context_of(request)
        self._principal = principal_of(request)
        self._request_id = str(request.scope["state"]["request_id"])
        self._action = action
        self._success = success
        self.target = target
        """What it is done to; replaced by the identifier once it is known."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._context.audit.add(
            AuditRow(
                at=self._context.clock(),
                request_id=self._request_id,
                organization=self._principal.slug,
                actor=self._principal.user,
                key_id=self._principal.key_id,
                action=self._action,
                target=self.target[:253],
                result=result_of(error, self._success),
            )
        )


def result_of(error: BaseException | None, success: int) -> str:
    """Answer how a write ended, as the audit trail says it."""
    if error is None:
        return str(success)
    if isinstance(error, KubeError):
        error = from_kube(error)
    if isinstance(error, ApiError):
        return error.result
    return "500 INTERNAL_ERROR"
