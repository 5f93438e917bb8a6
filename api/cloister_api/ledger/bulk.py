"""Bulk inserts in the SQL of each database. Table and column names are never user input."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from sqlalchemy import Table
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

PAGE = 20_000
"""Values in one query; SQLite accepts 32,766."""


def column_type(connection: Connection, table: Table, column: str) -> str:
    """Return the name of a column's type in PostgreSQL, without its length."""
    name: str = table.c[column].type.compile(connection.dialect)
    return name.partition("(")[0].lower()


def insert_rows(
    connection: Connection, table: Table, columns: Sequence[str], rows: list[tuple[Any, ...]]
) -> None:
    """Insert rows.

    Parameters
    ----------
    rows
        Values in the order of the columns.

    Raises
    ------
    SQLAlchemyError
        When the database refuses; the error does not contain the values.
    """
    if not rows:
        return
    target = f"{table.name} ({', '.join(columns)})"
    if connection.dialect.name == "sqlite":
        insert_values(connection, f"INSERT INTO {target}", "", rows)
    else:
        types = [column_type(connection, table, name) for name in columns]
        copy_rows(connection, f"COPY {target} FROM STDIN (FORMAT BINARY)", types, rows)


def insert_values(
    connection: Connection, head: str, tail: str, rows: Sequence[tuple[Any, ...]]
) -> None:
    """Insert rows into SQLite, many with one statement.

    The driver releases the GIL during a statement; with one statement for each row it would wait
    to get it back after each.

    Raises
    ------
    SQLAlchemyError
        When the database refuses.
    """
    width = len(rows[0])
    marks = "(" + ", ".join("?" * width) + ")"
    count = PAGE // width
    whole = len(rows) // count * count
    statement = f"{head} VALUES {', '.join([marks] * count)} {tail}"
    for begin in range(0, whole, count):
        values = tuple(chain.from_iterable(rows[begin : begin + count]))
        connection.exec_driver_sql(statement, values)
    if rest := rows[whole:]:
        connection.exec_driver_sql(f"{head} VALUES {marks} {tail}", list(rest))


def copy_rows(
    connection: Connection, statement: str, types: Sequence[str], rows: list[tuple[Any, ...]]
) -> None:
    """Copy rows into PostgreSQL: a twentieth of what the driver takes for parameters.

    Raises
    ------
    SQLAlchemyError
        When the database refuses.
    """
    base = connection.dialect.loaded_dbapi.Error
    try:
        with connection.connection.cursor().copy(statement) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)
    except base as error:
        # This bypasses the engine, whose errors callers expect.
        raise DBAPIError.instance(
            statement, None, error, base, hide_parameters=True, dialect=connection.dialect
        ) from error


def add_to_sums(
    connection: Connection,
    table: Table,
    keys: Sequence[str],
    sums: Sequence[str],
    rows: list[tuple[Any, ...]],
    *,
    replaced: Sequence[str] = (),
) -> None:
    """Add to rows of sums, or insert them.

    Parameters
    ----------
    rows
        Whole numbers in the order of keys, sums and replaced; each key once.
    """
    if not rows:
        return
    columns = [*keys, *sums, *replaced]
    changes = [f"{name} = {table.name}.{name} + excluded.{name}" for name in sums]
    changes += [f"{name} = excluded.{name}" for name in replaced]
    head = f"INSERT INTO {table.name} ({', '.join(columns)})"
    tail = f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {', '.join(changes)}"
    rows = sorted(rows)
    if connection.dialect.name == "sqlite":
        insert_values(connection, head, tail, rows)
        return
    types = [column_type(connection, table, name) for name in columns]
    arrays = ", ".join(f"%s::{one}[]" for one in types)
    # As text: the driver would convert each number on its own, which takes six times as long.
    values = tuple("{" + ",".join(map(str, column)) + "}" for column in zip(*rows, strict=True))
    connection.exec_driver_sql(f"{head} SELECT * FROM unnest({arrays}) {tail}", values)  # noqa: S608 - our own names


def known(connection: Connection, table: Table, column: str, values: Sequence[bytes]) -> set[bytes]:
    """Return the values that exist in a column.

    Parameters
    ----------
    column
        Name of an indexed column of bytes.
    """
    found: set[bytes] = set()
    head = f"SELECT {column} FROM {table.name} WHERE {column}"  # noqa: S608 - our own names
    for begin in range(0, len(values), PAGE):
        page = tuple(values[begin : begin + PAGE])
        if connection.dialect.name == "sqlite":
            marks = ", ".join("?" for _ in page)
            rows = connection.exec_driver_sql(f"{head} IN ({marks})", page)
        else:
            rows = connection.exec_driver_sql(f"{head} = ANY(%s)", (list(page),))
        found.update(bytes(row[0]) for row in rows)
    return found
