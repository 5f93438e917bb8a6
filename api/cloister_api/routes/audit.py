"""The audit row that every write leaves."""

from types import TracebackType
from typing import Self

from fastapi import Request

from cloister_api.auth.authenticator import Principal
from cloister_api.context import Context
from cloister_api.errors import ApiError, from_kube, request_id_of
from cloister_api.ledger.audit import AuditRow
from cloister_api.routes.dependencies import context_of, principal_of
from cloister_clients.kube import KubeError

__all__ = ["AuditedAction", "AuditedWrite"]

MAX_TARGET = 253
"""Most characters of a target: those of the column."""


class AuditedWrite:
    """A write in progress: leaving the block writes its audit row, whatever its result.

    Parameters
    ----------
    context
        What the facade has.
    principal
        Who attempts it.
    request_id
        Identifier of the request.
    action
        What is attempted, such as ``container.create``.
    target
        What it is done to.
    success
        HTTP status when nothing goes wrong.
    """

    def __init__(
        self,
        context: Context,
        principal: Principal,
        request_id: str,
        action: str,
        target: str,
        *,
        success: int = 200,
    ) -> None:
        self._context = context
        self._principal = principal
        self._request_id = request_id
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
                key_id=self._principal.key_id or None,
                session_id=self._principal.session_id or None,
                action=self._action,
                target=self.target[:MAX_TARGET],
                result=result_of(error, self._success),
                organization_id=self._principal.organization_id,
            )
        )


class AuditedAction(AuditedWrite):
    """A write by a request of the API."""

    def __init__(self, request: Request, action: str, target: str, *, success: int = 200) -> None:
        super().__init__(
            context_of(request),
            principal_of(request),
            request_id_of(request),
            action,
            target,
            success=success,
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
