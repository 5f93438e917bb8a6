"""Which errors of a real SQLite file mean that the ledger is away, and what is logged then."""

import logging
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import SQLAlchemyError

from cloister_api.errors import from_ledger
from cloister_api.ledger.availability import is_away, is_news
from cloister_api.ledger.database import open_ledger

BEGINNING = "the ledger is away"


def error_of(url: str, statement: str) -> SQLAlchemyError:
    engine = create_engine(url)
    try:
        with pytest.raises(SQLAlchemyError) as found, engine.begin() as connection:
            connection.exec_driver_sql(statement)
        return found.value
    finally:
        engine.dispose()


def test_a_file_that_cannot_be_used_is_away_and_a_fault_is_not(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    file.touch()
    read_only = f"sqlite:///file:{file}?mode=ro&uri=true"
    away = [
        error_of(read_only, "CREATE TABLE t (x)"),
        error_of(f"sqlite:///{tmp_path}/missing/ledger.db", "SELECT 1"),
    ]
    for error in away:
        refusal = from_ledger(error)
        assert refusal is not None
        assert (refusal.status, refusal.code, refusal.retry_after) == (503, "UNAVAILABLE", 5)
    fault = error_of(f"sqlite:///{file}", "SELECT x FROM nothing")
    assert not is_away(fault)
    assert from_ledger(fault) is None
    for error, written in ((away[0], False), (fault, True)):
        record = logging.LogRecord("x", 40, "x", 1, "failed", None, (type(error), error, None))
        assert is_news(record) is written


async def test_each_change_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "here" / "ledger.db"
    engine = open_ledger(place)

    async def write() -> None:
        async with engine.begin() as connection:
            await connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS t (x)")

    try:
        for _ in range(3):
            with pytest.raises(SQLAlchemyError):
                await write()
        place.parent.mkdir()
        for _ in range(3):
            await write()
    finally:
        await engine.dispose()
    lines = [each.getMessage() for each in caplog.records if each.name.endswith("availability")]
    assert lines == [
        f"{BEGINNING}: unable to open database file; writes are refused with 503 until it responds",
        "the ledger responds again",
    ]
