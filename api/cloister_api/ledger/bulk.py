"""Many rows at once, in the words of each database. Called with tables of our own alone."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table
from sqlalchemy.engine import Connection

__all__ = ["add_to_sums", "insert_rows", "known"]

PAGE = 20_000
"""Values in one question; SQLite takes 32,766."""


def placeholders(connection: Connection, table: Table, columns: Sequence[str]) -> str:
    """Answer the source of rows: values for SQLite, one array for each column for PostgreSQL."""
    if connection.dialect.name == "sqlite":
        return "VALUES (" + ", ".join("?" for _ in columns) + ")"
    types = [array_type(connection, table, name) for name in columns]
    arrays = ", ".join(f"%s::{one}[]" for one in types)
    return f"SELECT * FROM unnest({arrays})"  # noqa: S608 - our own names


def array_type(connection: Connection, table: Table, column: str) -> str:
    """Answer the name of a column's type in PostgreSQL."""
    name: str = table.c[column].type.compile(connection.dialect)
    return name.lower()


def run(connection: Connection, statement: str, rows: list[tuple[Any, ...]]) -> None:
    """Run a statement with rows."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(statement, rows)
    else:
        connection.exec_driver_sql(
            statement, tuple(list(column) for column in zip(*rows, strict=True))
        )


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
    """
    if rows:
        source = placeholders(connection, table, columns)
        run(connection, f"INSERT INTO {table.name} ({', '.join(columns)}) {source}", rows)


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
        Values in the order of keys, sums and replaced; each key once.
    replaced
        Columns that take the new value.
    """
    if not rows:
        return
    columns = [*keys, *sums, *replaced]
    source = placeholders(connection, table, columns)
    changes = [f"{name} = {table.name}.{name} + excluded.{name}" for name in sums]
    changes += [f"{name} = excluded.{name}" for name in replaced]
    statement = (
        f"INSERT INTO {table.name} ({', '.join(columns)}) {source} "
        f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {', '.join(changes)}"
    )
    run(connection, statement, sorted(rows))


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
