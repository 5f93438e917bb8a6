"""The audit trail as CSV, and what a client accepts."""

import csv
import io
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cloister_api.errors import ApiError
from cloister_api.ledger.audit import AuditRow
from cloister_api.records.resources import audit_record, csv_text
from cloister_api.routes.audit import row_of, wants_csv
from cloister_api.routes.parameters import encode_cursor

ROW = AuditRow(
    at=datetime(2026, 11, 22, 5, 0, 0, 250, tzinfo=UTC),
    request_id="r1",
    organization="acme",
    actor="ada@example.test",
    key_id=None,
    action="secret.create",
    target='with "quotes", commas\nand lines',
    result="409 CONFLICT",
    organization_id="o1",
)


def test_rows_come_back_from_csv() -> None:
    text = csv_text([audit_record(7, ROW)])
    header, row = csv.reader(io.StringIO(text))
    assert dict(zip(header, row, strict=True)) == {
        "id": "7",
        "at": "2026-11-22T05:00:00.000250Z",
        "request_id": "r1",
        "actor": "ada@example.test",
        "via": "system",
        "key_id": "",
        "session_id": "",
        "action": "secret.create",
        "target": ROW.target,
        "result": "409 CONFLICT",
    }
    assert csv_text([]) == ",".join(header) + "\r\n"


@pytest.mark.parametrize(
    ("changes", "via"),
    [
        ({"key_id": "k1"}, "key"),
        ({"session_id": "s1"}, "session"),
        ({"actor": "command line: root"}, "command"),
        ({}, "system"),
    ],
)
def test_a_row_says_by_which_way(changes: dict[str, Any], via: str) -> None:
    assert audit_record(1, replace(ROW, **changes)).via == via


@pytest.mark.attack("spreadsheet-formula")
@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_is_a_formula(start: str) -> None:
    row = AuditRow(ROW.at, "r1", "acme", f"{start}x", None, "a", f"{start}HYPERLINK(1)", "200")
    _, cells = csv.reader(io.StringIO(csv_text([audit_record(1, row)]), newline=""))
    assert [cell for cell in cells if cell.endswith(("x", ")"))] == [
        f"'{start}x",
        f"'{start}HYPERLINK(1)",
    ]


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (None, False),
        ("*/*", False),
        ("application/json, text/csv", False),
        ("text/html", False),
        ("text/csv", True),
        ("Text/CSV; q=0.9, */*;q=0.1", True),
        ("text/html, text/csv", True),
    ],
)
def test_csv_is_sent_where_it_is_named_before_json(accept: str | None, *, wanted: bool) -> None:
    assert wants_csv(accept) is wanted


def test_a_cursor_is_the_number_of_a_row() -> None:
    assert row_of(None) is None
    assert row_of(encode_cursor(("42",))) == 42
    for key in ((), ("x",), ("1", "2"), ("-1",), ("9" * 19,), ("",)):
        with pytest.raises(ApiError):
            row_of(encode_cursor(key))
