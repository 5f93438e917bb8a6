"""Many rows at once, in the words of each database. Called with tables of our own alone."""

from collections.abc import Sequence
from typing import Any

import psycopg
from sqlalchemy import Table
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

__all__ = ["add_to_sums", "insert_rows", "known"]

PAGE = 20_000
"""Values in one question; SQLite takes 32,766."""


def column_type(connection: Connection, table: Table, column: str) -> str:
    """Answer the name of a column's type in PostgreSQL, without its length."""
    name: str = table.c[column].type.compile(connection.dialect)
    return name.partition("(")[0].lower()


def insert_rows(
    connection: Connection, table: Table, columns: Sequence[str], rows: list[tuple[Any, ...]]
) -> None:
    """Insert rows.

    Parameters
    ----------
    connection
        Connection in a transaction.
    table
        The table.
    columns
        Names of the columns.
    rows
        Values in the order of the columns.

    Raises
    ------
    SQLAlchemyError
        When the database refuses; nothing tells the values.
    """
    if not rows:
        return
    target = f"{table.name} ({', '.join(columns)})"
    if connection.dialect.name == "sqlite":
        marks = ", ".join("?" for _ in columns)
        statement = f"INSERT INTO {target} VALUES ({marks})"  # noqa: S608 - our own names
        connection.exec_driver_sql(statement, rows)
    else:
        types = [column_type(connection, table, name) for name in columns]
        copy_rows(connection, f"COPY {target} FROM STDIN (FORMAT BINARY)", types, rows)


def copy_rows(
    connection: Connection, statement: str, types: Sequence[str], rows: list[tuple[Any, ...]]
) -> None:
    """Copy rows into PostgreSQL: a twentieth of what the driver takes for parameters.

    Raises
    ------
    SQLAlchemyError
        When the database refuses.
    """
    try:
        with connection.connection.cursor().copy(statement) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)
    except psycopg.Error as error:
        # The engine does not see what goes past it, and callers know its errors alone.
        raise DBAPIError.instance(
            statement, None, error, psycopg.Error, hide_parameters=True, dialect=connection.dialect
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
    connection
        Connection in a transaction.
    table
        The table.
    keys
        Columns of its key.
    sums
        Columns that are added up.
    rows
        Whole numbers in the order of keys, sums and replaced; each key once.
    replaced
        Columns that take the new value.
    """
    if not rows:
        return
    columns = [*keys, *sums, *replaced]
    plain = connection.dialect.name == "sqlite"
    if plain:
        source = "VALUES (" + ", ".join("?" for _ in columns) + ")"
    else:
        types = [column_type(connection, table, name) for name in columns]
        arrays = ", ".join(f"%s::{one}[]" for one in types)
        source = f"SELECT * FROM unnest({arrays})"  # noqa: S608 - our own names
    changes = [f"{name} = {table.name}.{name} + excluded.{name}" for name in sums]
    changes += [f"{name} = excluded.{name}" for name in replaced]
    statement = (
        f"INSERT INTO {table.name} ({', '.join(columns)}) {source} "
        f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {', '.join(changes)}"
    )
    rows = sorted(rows)
    if plain:
        connection.exec_driver_sql(statement, rows)
    else:
        # As text: the driver would look at each number on its own, six times as long.
        values = tuple("{" + ",".join(map(str, column)) + "}" for column in zip(*rows, strict=True))
        connection.exec_driver_sql(statement, values)


def known(connection: Connection, table: Table, column: str, values: Sequence[bytes]) -> set[bytes]:
    """Answer which values stand in a column.

    Parameters
    ----------
    connection
        Connection in a transaction.
    table
        The table.
    column
        Name of an indexed column of bytes.
    values
        The values.
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
