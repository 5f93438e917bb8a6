"""/api/audit, and the audit row that every write leaves."""

import logging
import re
from datetime import datetime
from types import TracebackType
from typing import Annotated, Self

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import AfterValidator, BeforeValidator
from sqlalchemy.exc import SQLAlchemyError

from cloister_api.auth.authenticator import Principal
from cloister_api.context import Context
from cloister_api.errors import ApiError, from_kube, from_ledger, request_id_of
from cloister_api.ledger.audit import BEGUN, AuditQuery, AuditRow
from cloister_api.ledger.availability import is_away
from cloister_api.records.resources import audit_record, csv_text
from cloister_api.routes.dependencies import StrictRoute, context_of, principal_of
from cloister_api.routes.parameters import (
    LINK,
    MAX_LIMIT,
    Cursor,
    decode_cursor,
    next_page,
    not_a_cursor,
    responses,
)
from cloister_api.schemas.accounts import AuditRowResponse
from cloister_api.schemas.containers import without_nul
from cloister_api.schemas.keys import moment
from cloister_api.wire import JsonResponse
from cloister_clients.kube import KubeError

logger = logging.getLogger(__name__)

MAX_TARGET = 253
"""Most characters of a target: those of the column."""


class AuditedWrite:
    """A write in progress: its audit row is there before anything is done.

    Leaving the block records the result in it, whatever that is. An exception of the block passes.

    Parameters
    ----------
    action
        What is attempted, such as ``container.create``.
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
        self._number = 0
        self.target = target
        """What is changed; replaced by the identifier once it is known."""

    async def __aenter__(self) -> Self:
        """Record that it begins.

        Raises
        ------
        ApiError
            503 when the ledger does not respond: what cannot be recorded is not done.
        """
        try:
            self._number = await self._context.audit.add(self._row())
        except SQLAlchemyError as error:
            raise from_ledger(error) or error from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        result = result_of(error, self._success)
        try:
            await self._context.audit.complete(
                self._number, target=self.target[:MAX_TARGET], result=result
            )
        except SQLAlchemyError as failed:
            if not is_away(failed):
                raise
            # The caller learns what was done; the row says that it was begun.
            logger.warning(
                "request %s: %s ended with %s, which its audit row does not say",
                self._request_id,
                self._action,
                result,
            )

    def _row(self) -> AuditRow:
        """Return the row of the attempt."""
        return AuditRow(
            at=self._context.clock(),
            request_id=self._request_id,
            organization=self._principal.slug,
            actor=self._principal.user,
            key_id=self._principal.key_id or None,
            session_id=self._principal.session_id or None,
            action=self._action,
            target=self.target[:MAX_TARGET],
            result=BEGUN,
            organization_id=self._principal.organization_id,
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
    if isinstance(error, SQLAlchemyError):
        error = from_ledger(error)
    if isinstance(error, ApiError):
        return error.result
    return "500 INTERNAL_ERROR"


router = APIRouter(prefix="/api/audit", tags=["audit"], route_class=StrictRoute)

CSV = "text/csv"
NUMBER = re.compile("[0-9]{1,18}")
"""Numbers of rows, all of which the database can compare."""
MAX_TEXT = 253
"""Most characters of what rows are chosen by: those of the columns."""
Text = Annotated[str, AfterValidator(without_nul)]
Actor = Annotated[
    Text | None, Query(max_length=MAX_TEXT, description="Only what this user attempted.")
]
Action = Annotated[
    Text | None,
    Query(max_length=MAX_TEXT, description="Only this action, such as `container.create`."),
]
Target = Annotated[
    Text | None, Query(max_length=MAX_TEXT, description="Only what was done to this identifier.")
]
Since = Annotated[
    datetime | None,
    BeforeValidator(lambda given: None if given is None else moment(given)),
    Query(description="Only from this time on, RFC 3339."),
]
Rows = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Rows at most.")]
# Documents name it by the media types of responses (OpenAPI 3.1, "Parameter Object").
Accept = Annotated[str | None, Header(include_in_schema=False)]
DECLARED = responses(400, headers=(LINK,))
DECLARED[200]["content"] = {CSV: {"schema": {"type": "string"}}}


@router.get("", responses=DECLARED)
async def list_audit_rows(
    request: Request,
    actor: Actor = None,
    action: Action = None,
    target: Target = None,
    since: Since = None,
    limit: Rows = MAX_LIMIT,
    cursor: Cursor = None,
    accept: Accept = None,
) -> JsonResponse[list[AuditRowResponse]] | Response:
    """List attempted changes of the organization, newest first; as CSV where that is accepted."""
    context, principal = context_of(request), principal_of(request)
    query = AuditQuery(
        organization=principal.slug,
        organization_id=principal.organization_id,
        present_since=principal.organization.metadata.creation_timestamp,
        # One more than the page shows whether another page follows.
        limit=limit + 1,
        actor=actor,
        action=action,
        target=target,
        since=since,
        before=row_of(cursor),
    )
    found = await context.audit.page(query)
    records = [audit_record(number, row) for number, row in found[:limit]]
    headers = {}
    if len(found) > limit:
        kept = {"actor": actor, "action": action, "target": target}
        since_text = None if since is None else since.isoformat()
        last = (str(records[-1].id),)
        headers = next_page(request, limit, last, {**kept, "since": since_text})
    if wants_csv(accept):
        return Response(csv_text(records), headers=headers, media_type=CSV)
    return JsonResponse(records, headers=headers)


def row_of(cursor: str | None) -> int | None:
    """Return the number of the row that a cursor is about; None stays None.

    Raises
    ------
    ApiError
        400 when it is not a cursor of this list.
    """
    if cursor is None:
        return None
    number, *more = decode_cursor(cursor) or ("",)
    if more or not NUMBER.fullmatch(number):
        raise not_a_cursor()
    return int(number)


def wants_csv(accept: str | None) -> bool:
    """Return whether the header Accept names CSV before anything that JSON is."""
    kinds = [each.partition(";")[0].strip().lower() for each in (accept or "").split(",")]
    known = [each for each in kinds if each in {CSV, "application/json", "application/*", "*/*"}]
    return known[:1] == [CSV]
