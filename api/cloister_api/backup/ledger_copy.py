"""Copies a ledger into another one, of SQLite or PostgreSQL: all rows of one moment, or none.

A backup is a copy in an SQLite file, whatever the ledger is, and a restore a copy of that.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    RowMapping,
    Table,
    delete,
    func,
    insert,
    select,
)
from sqlalchemy.exc import SQLAlchemyError

from cloister_api.ledger.database import (
    LedgerError,
    Place,
    display_name,
    disposed,
    migrate,
    open_to_read,
    open_writer,
)
from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.ledger.keys.rotation import SEALED
from cloister_api.ledger.tables.core import ADMIN_KEYS, API_KEYS, METADATA, REPLICAS
from cloister_api.ledger.tables.metering import RUNTIME_ENCLAVES
from cloister_api.ledger.tables.sessions import SESSION_LINKS, SESSIONS
from cloister_api.ledger.tables.usage import EVENTS, PRICE_VERSIONS, REPORTERS
from cloister_api.ledger.tables.utilization import LEASES

__all__ = ["Sums", "back_up", "check_material", "restore"]

T = TypeVar("T")

BATCH: Final = 2_000
"""Rows that are in memory at a time."""
IN_USE: Final = (ADMIN_KEYS, API_KEYS, REPORTERS, PRICE_VERSIONS, EVENTS, RUNTIME_ENCLAVES)
"""Tables of which one has rows in every ledger that somebody used."""
NAMED_BY: Final[tuple[ColumnElement[Any], ...]] = (
    ADMIN_KEYS.c.key_index,
    API_KEYS.c.key_index,
    REPORTERS.c.id,
)
"""Columns by which a ledger that was restored before, and used since, is recognized."""

Sums = dict[str, str]
"""Rows and digest of each table, which depends neither on the database nor on the order of rows."""


def tables() -> list[Table]:
    """Return the tables of a copy: all but those that say which facades run and who is signed in.

    A session that was ended since must not come back.
    """
    passing = {LEASES, REPLICAS, SESSIONS, SESSION_LINKS}
    return [each for each in METADATA.sorted_tables if each not in passing]


def back_up(place: Place, file: Path) -> Sums:
    """Copy a ledger into a new SQLite file, while facades run.

    Raises
    ------
    LedgerError
        When the ledger cannot be read, or the file not written.
    """
    migrate(place)
    migrate(file)
    sums = copied(place, file, copy_rows)
    with closing(sqlite3.connect(file)) as connection:
        # Without this, a second file would belong to it.
        connection.execute("PRAGMA journal_mode=DELETE")
    return sums


def restore(file: Path, place: Place, material: KeyMaterial) -> Sums | None:
    """Copy a backup into an empty ledger, in one transaction that proves the copy before it ends.

    Parameters
    ----------
    file
        The backup; one of an older release is migrated.
    place
        The ledger, which is created if it does not exist.
    material
        The keys, which must be those of the backup.

    Returns
    -------
    dict or None
        The sums of both; None = the ledger has every key of the backup already and stays as it is.

    Raises
    ------
    LedgerError
        When the ledger holds something else, one of the two cannot be used, or the copy differs.
    MaterialError
        When a key of the backup does not open with the key material.
    """
    try:
        with file.open("rb") as opened:
            header = opened.read(15)
    except OSError as error:
        raise LedgerError(f"{file}: {error.strerror}") from error
    if header != b"SQLite format 3":
        raise LedgerError(
            f"{file} is not a backup of a ledger; `cloister ledger backup` writes one"
        )
    migrate(file)
    check_material(file, material)
    migrate(place)

    def copy(source: Connection, target: Connection) -> Sums | None:
        if any(has_rows(target, table) for table in IN_USE):
            if has_all(source, target):
                return None
            raise LedgerError(
                f"{display_name(place)} is in use: it has keys, prices or usage of its own; "
                "restore into an empty one"
            )
        sums = copy_rows(source, target)
        differing = [name for name, sum_ in sums_of(target).items() if sums[name] != sum_]
        if differing:
            raise LedgerError(f"{display_name(place)}: tables {', '.join(differing)} differ")
        return sums

    return copied(file, place, copy)


def copied(place: Place, into: Place, copy: Callable[[Connection, Connection], T]) -> T:
    """Run a copy in a snapshot of one ledger and a transaction of the other."""
    try:
        with (
            disposed(open_to_read(place)) as reading,
            disposed(open_writer(into)) as writing,
            snapshot_of(reading).connect() as source,
            writing.begin() as target,
        ):
            return copy(source, target)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(str(error)) from error
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise LedgerError(f"{display_name(place)}, {display_name(into)}: {reason}") from error


def snapshot_of(engine: Engine) -> Engine:
    """Return an engine whose transactions see one moment."""
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def copy_rows(source: Connection, target: Connection) -> Sums:
    """Put the rows of one ledger in the place of those of another."""
    sums = {}
    for table in tables():
        target.execute(delete(table))
        sum_ = TableSum()
        for rows in batches(source, table):
            sum_.add(rows)
            target.execute(insert(table), [dict(row) for row in rows])
        sums[table.name] = sum_.text()
        if target.dialect.name == "postgresql":
            continue_numbers(target, table)
    return sums


def continue_numbers(connection: Connection, table: Table) -> None:
    """Let PostgreSQL number further rows after those that were copied."""
    column = table.autoincrement_column
    if column is None:
        return
    sequence = func.pg_get_serial_sequence(table.name, column.name)
    last = select(func.max(column)).scalar_subquery()
    if connection.execute(select(sequence, last)).one()[1] is not None:
        connection.execute(select(func.setval(sequence, last)))


def sums_of(connection: Connection) -> Sums:
    """Compute the sums of a ledger."""
    sums = {}
    for table in tables():
        sum_ = TableSum()
        for rows in batches(connection, table):
            sum_.add(rows)
        sums[table.name] = sum_.text()
    return sums


def batches(connection: Connection, table: Table) -> Iterable[list[RowMapping]]:
    """Yield the rows of a table, a few at a time."""
    options = {"stream_results": True, "yield_per": BATCH}
    result = connection.execute(select(table), execution_options=options)
    for part in result.mappings().partitions():
        yield list(part)


class TableSum:
    """Number of rows, and the sum of their digests."""

    def __init__(self) -> None:
        self._rows = 0
        self._sum = 0

    def add(self, rows: list[RowMapping]) -> None:
        """Count rows."""
        self._rows += len(rows)
        for row in rows:
            text = repr([plain(value) for value in row.values()])
            digest = hashlib.sha256(text.encode()).digest()
            self._sum = (self._sum + int.from_bytes(digest)) % 2**256

    def text(self) -> str:
        """Write both, such as ``3 5f2c…``."""
        return f"{self._rows} {self._sum:064x}"


def plain(value: Any) -> Any:
    """Return a value as every database has it."""
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value


def has_rows(connection: Connection, table: Table) -> bool:
    """Return whether a table has rows."""
    return connection.execute(select(*table.primary_key).limit(1)).first() is not None


def has_all(source: Connection, target: Connection) -> bool:
    """Return whether a ledger has the keys and reporters of another one, which has some."""
    known, wanted = (
        {(str(column), name) for column in NAMED_BY for name in each.scalars(select(column))}
        for each in (target, source)
    )
    return bool(wanted) and wanted <= known


def check_material(place: Place, material: KeyMaterial) -> None:
    """Prove that every sealed value of a ledger opens.

    Raises
    ------
    MaterialError
        When one does not.
    """
    with disposed(open_to_read(place)) as engine, engine.connect() as connection:
        for table, context in SEALED:
            for rows in batches(connection, table):
                for row in rows:
                    if row["sealed"]:
                        material.unseal(row["sealed"], context=context(row))
