"""The audit row that every write leaves."""

from types import TracebackType
from typing import Self

from fastapi import Request

from cloister_api.errors import ApiError, from_kube, request_id_of
from cloister_api.ledger.audit import AuditRow
from cloister_api.routes.dependencies import context_of, principal_of
from cloister_clients.kube import KubeError

__all__ = ["AuditedAction"]

MAX_TARGET = 253
"""Most characters of a target: those of the column."""


class AuditedAction:
    """A write in progress: leaving the block writes its audit row, whatever its result."""

    def __init__(self, request: Request, action: str, target: str, *, success: int = 200) -> None:
        self._context = context_of(request)
        self._principal = principal_of(request)
        self._request_id = request_id_of(request)
        self._action = action
        self._success = success
        self.target = target
        """What is changed; replaced by the identifier once it is known."""

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
                target=self.target[:MAX_TARGET],
                result=result_of(error, self._success),
                organization_id=self._principal.organization_id,
            )
        )


def result_of(error: BaseException | None, success: int) -> str:
    """Return the result of a write as the audit trail records it."""
    if error is None:
        return str(success)
    if isinstance(error, KubeError):
        error = from_kube(error)
    if isinstance(error, ApiError):
        return error.result
    return "500 INTERNAL_ERROR"
