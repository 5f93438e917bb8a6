"""The audit trail for readers: rows of the organization, as JSON or CSV."""

import csv
import io
from collections.abc import Iterable
from typing import Literal

from cloister_api.ledger.audit import COMMAND_LINE, AuditRow
from cloister_api.schemas.account_responses import AuditRowResponse
from cloister_clients.clock import utc_text

__all__ = ["audit_record", "csv_text", "harmless"]

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters by which a spreadsheet takes a text for a formula."""


def audit_record(number: int, row: AuditRow) -> AuditRowResponse:
    """Return the record of a row."""
    return AuditRowResponse(
        id=number,
        at=utc_text(row.at),
        request_id=row.request_id,
        actor=row.actor,
        via=via_of(row),
        key_id=row.key_id,
        session_id=row.session_id,
        action=row.action,
        target=row.target,
        result=row.result,
    )


def via_of(row: AuditRow) -> Literal["key", "session", "command", "system"]:
    """Return how something was attempted."""
    if row.key_id is not None:
        return "key"
    if row.session_id is not None:
        return "session"
    return "command" if row.actor.startswith(COMMAND_LINE) else "system"


def csv_text(records: Iterable[AuditRowResponse]) -> str:
    """Return rows as CSV (RFC 4180) with a header line.

    A text that a spreadsheet would run as a formula gets an apostrophe in front.
    """
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(AuditRowResponse.model_fields)
    for record in records:
        writer.writerow(harmless(value) for _, value in record)
    return file.getvalue()


def harmless(value: object) -> object:
    """Return a cell that no spreadsheet runs."""
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value
