"""Opens the ledger: engine, SQLite's settings, migrations.

Called by the facade at start and by the commands. More than one process may open one SQLite file
on the same machine; replicas on several machines need PostgreSQL, which is not built yet.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import alembic.command
import alembic.config
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

__all__ = ["LedgerError", "migrate", "open_ledger"]

MIGRATIONS = Path(__file__).parent / "migrations"
BUSY_SECONDS = 30
"""How long a writer waits for another one."""


class LedgerError(Exception):
    """The ledger cannot be opened; the message says what to change."""


def open_ledger(path: Path) -> AsyncEngine:
    """Open the ledger in an SQLite file that `migrate` has prepared.

    Parameters
    ----------
    path
        The file.
    """
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", pool_pre_ping=False)

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    return engine


def migrate(path: Path) -> None:
    """Bring an SQLite file to the newest form; several processes may do so at once.

    Parameters
    ----------
    path
        The file; it is created with mode 0600 where missing, its directory as well.

    Raises
    ------
    LedgerError
        When the file cannot be written or was made by a newer release.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"ledger {path}: {error}") from error
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": BUSY_SECONDS})
    # The driver would open a transaction only before the first write, too late to keep a second
    # process from migrating at the same time.
    event.listen(engine, "connect", leave_transactions_to_us)
    event.listen(engine, "begin", begin_for_writing)
    config = alembic.config.Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    try:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            alembic.command.upgrade(config, "head")
    except alembic.util.CommandError as error:
        raise LedgerError(
            f"ledger {path} was written by a newer release ({error}); upgrade this one"
        ) from error
    finally:
        engine.dispose()


def leave_transactions_to_us(connection: Any, _: object) -> None:
    """Switch the driver's own transactions off."""
    connection.isolation_level = None


def begin_for_writing(connection: Connection) -> None:
    """Take the write lock at once."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
