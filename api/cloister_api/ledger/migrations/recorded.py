"""Which migrations a ledger has seen, and which releases can use it.

A release uses what a later one has migrated while that says so, so that programs can be rolled
back without the ledger, and replicas of two releases can run at the same time.
"""

from sqlalchemy import Column, MetaData, String, Table, insert, inspect, select, update
from sqlalchemy.engine import Connection

NEWEST = "0012"
"""The last migration of this release."""
OLDEST = "0011"
"""Newest migration of the oldest release that can use what this one makes: 0.2.0. A migration that
takes away what an earlier release needs raises it."""
TABLES = MetaData()
"""Apart from the ledger's own tables, which are compared with the migrations."""
VERSION = Table(
    "ledger_version",
    TABLES,
    Column("version_num", String(32), nullable=False),
    Column("oldest", String(32), nullable=True),
)
"""The last migration, and the newest one of the oldest release that can use the ledger."""
EARLIER_VERSION = Table(
    "alembic_version", TABLES, Column("version_num", String(32), nullable=False)
)
"""Where release 0.2.0 looks for its own last migration; it refuses any other."""


def version_of(connection: Connection) -> str:
    """Return the last migration that was applied to a ledger; empty if it is new."""
    tables = inspect(connection)
    for table in (VERSION, EARLIER_VERSION):
        if tables.has_table(table.name):
            return str(connection.execute(select(table.c.version_num)).scalar() or "")
    return ""


def is_usable(connection: Connection) -> bool:
    """Return whether this release can use a ledger as it is."""
    if not inspect(connection).has_table(VERSION.name):
        return False
    row = connection.execute(select(VERSION.c.version_num, VERSION.c.oldest)).one_or_none()
    if row is None:
        return False
    present, oldest = row
    return bool(present == NEWEST or (present > NEWEST and (oldest or present) <= NEWEST))


def take_over_version(connection: Connection) -> None:
    """Begin to record migrations in a table of our own, with what was recorded before."""
    if inspect(connection).has_table(VERSION.name):
        return
    present = version_of(connection)
    VERSION.create(connection)
    if present:
        connection.execute(insert(VERSION).values(version_num=present))


def tell_earlier_releases(connection: Connection) -> None:
    """Record which earlier releases can use a ledger.

    Since 0.2.0 migrations add tables, and columns that may be empty, and allow keys of one name:
    it is told of its own last migration.
    """
    readable = min(version_of(connection), OLDEST)
    connection.execute(update(VERSION).values(oldest=readable))
    EARLIER_VERSION.create(connection, checkfirst=True)
    connection.execute(EARLIER_VERSION.delete())
    connection.execute(insert(EARLIER_VERSION).values(version_num=readable))
