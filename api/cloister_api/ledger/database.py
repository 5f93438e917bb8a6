"""The ledger's database: its settings, engine and migrations."""

import asyncio
import sqlite3
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Self

from pydantic import model_validator
from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.engine import Connection
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from typing_extensions import override

from cloister_api.ledger.availability import Availability, is_locked, reason_of
from cloister_api.ledger.migrations.recorded import (
    is_usable,
    take_over_version,
    tell_earlier_releases,
)
from cloister_clients.settings import SettingsSection


class LedgerSettings(SettingsSection):
    """Where the ledger is."""

    path: Path | None = None
    """SQLite file; one machine, any number of processes. Unset means PostgreSQL."""
    url_file: Path | None = None
    """File with the address of a PostgreSQL database, which holds a password: one line such as
    postgresql://user:password@host/database. Unset means SQLite."""
    key_material: Path
    """File with the two secret keys, mode 0600; `cloister admin-key init` creates it."""

    @model_validator(mode="after")
    def one_place(self) -> Self:
        """Refuse a ledger in two places, or in none.

        Raises
        ------
        ValueError
            When path and urlFile are both set or both unset.
        """
        if (self.path is None) == (self.url_file is None):
            raise ValueError("name either path (SQLite) or urlFile (PostgreSQL)")
        return self


MIGRATIONS = Path(__file__).parent / "migrations"
BUSY_SECONDS = 30
"""How long a writer waits for another one."""
LOCKED_SECONDS = 0.1
"""How long SQLite itself waits for a lock: see `WritingInTurn`."""
READING_KIB = 8192
"""Memory that a connection to SQLite may take for pages and for sorting."""
CONNECT_SECONDS = 10
"""How long a connection to PostgreSQL may take."""
CONNECTIONS = 10
"""Connections to PostgreSQL that a facade keeps; it opens as many more under load."""
MIGRATION_LOCK = 0x636C6F6973746572
"""Number of the advisory lock that one migration at a time holds in PostgreSQL."""

Place = Path | URL
"""Where a ledger is: an SQLite file, or the address of a PostgreSQL database."""


class LedgerError(Exception):
    """The ledger cannot be opened; the message says what to change."""


def place_of(settings: LedgerSettings) -> Place:
    """Return where the ledger is.

    Raises
    ------
    LedgerError
        When the file with the address cannot be used; the message holds nothing of the address.
    """
    if settings.path is not None:
        return settings.path
    file = settings.url_file
    assert file is not None
    try:
        mode, text = file.stat().st_mode, file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"ledger.urlFile {file}: {error}") from error
    if mode & stat.S_IRWXO:
        raise LedgerError(f"{file} may be read by everybody; run `chmod o= {file}`")
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise LedgerError(f"{file} {WANTED}") from error
    if url.drivername not in {"postgresql", "postgres"} or not url.database:
        raise LedgerError(f"{file} {WANTED}")
    return url.set(drivername="postgresql+psycopg")


WANTED = "must hold one line such as postgresql://user:password@host/database?sslmode=verify-full"


def open_ledger(place: Place) -> AsyncEngine:
    """Open a ledger that `migrate` has prepared."""
    availability = Availability()
    if isinstance(place, URL):
        server = create_async_engine(
            place,
            pool_pre_ping=True,
            pool_size=CONNECTIONS,
            max_overflow=CONNECTIONS,
            connect_args={"connect_timeout": CONNECT_SECONDS},
        )
        availability.follow(server)
        return server
    engine = WritingInTurn(
        create_async_engine(f"sqlite+aiosqlite:///{place}", pool_pre_ping=False).sync_engine,
        availability,
    )
    availability.follow(engine)

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={round(LOCKED_SECONDS * 1000)}")
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        # So that queries of usage sort in memory instead of in a file.
        cursor.execute(f"PRAGMA cache_size=-{READING_KIB}")
        cursor.close()

    return engine


def open_to_read(place: Place) -> Engine:
    """Open a ledger for reading a snapshot of it; no writer waits for that."""
    if isinstance(place, URL):
        return create_engine(place, connect_args={"connect_timeout": CONNECT_SECONDS})
    engine = create_engine(f"sqlite:///{place}", connect_args={"timeout": LOCKED_SECONDS})
    event.listen(engine, "connect", disable_driver_transactions)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def open_writer(place: Place) -> Engine:
    """Open a ledger for the one thread of a facade that writes usage.

    What was acknowledged to a reporter must survive a crash of the machine: SQLite syncs to disk at
    each commit, which one transaction for many reports makes cheap.
    """
    if isinstance(place, URL):
        connect = {"connect_timeout": CONNECT_SECONDS}
        return create_engine(place, pool_pre_ping=True, pool_size=1, connect_args=connect)
    engine = create_engine(f"sqlite:///{place}", connect_args={"timeout": LOCKED_SECONDS})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA cache_size=-65536")

    event.listen(engine, "begin", begin_for_writing)
    return engine


def migrate(place: Place) -> None:
    """Migrate a ledger to the newest version; several processes may do so concurrently.

    Parameters
    ----------
    place
        Where it is; a missing SQLite file is created with mode 0600, its directory as well.

    Raises
    ------
    LedgerError
        When it cannot be reached or written, or was made by a newer release.
    """
    name = display_name(place)
    try:
        with (
            disposed(engine_to_migrate(place)) as engine,
            engine.begin() as connection,
        ):
            if isinstance(place, URL):
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
            if not is_usable(connection):
                apply_migrations(connection, name)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"{name}: {error}") from error
    except SQLAlchemyError as error:
        raise LedgerError(f"{name}: {reason_of(error)}") from error


def apply_migrations(connection: Connection, name: str, revision: str = "head") -> None:
    """Apply the migrations that a ledger has not seen.

    Raises
    ------
    LedgerError
        When a newer release has written the ledger.
    """
    # Importing Alembic takes a tenth of the facade's start-up time and is rarely needed.
    import alembic.command  # noqa: PLC0415 - as above
    import alembic.config  # noqa: PLC0415 - as above
    from alembic.util import CommandError  # noqa: PLC0415 - as above

    config = alembic.config.Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        take_over_version(connection)
        alembic.command.upgrade(config, revision)
        tell_earlier_releases(connection)
    except CommandError as error:
        raise LedgerError(
            f"{name} was written by a newer release ({error}); upgrade this one"
        ) from error


def display_name(place: Place) -> str:
    """Return the name of a ledger for messages: without user and password."""
    if isinstance(place, URL):
        return f"ledger {place.database} at {place.host or 'the local socket'}"
    return f"ledger {place}"


def engine_to_migrate(place: Place) -> Engine:
    """Create an engine for migrations.

    Raises
    ------
    OSError, sqlite3.Error
        When an SQLite file cannot be created.
    """
    if isinstance(place, URL):
        return create_engine(place, connect_args={"connect_timeout": CONNECT_SECONDS})
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch(mode=0o600, exist_ok=True)
    write_ahead(place)
    engine = create_engine(f"sqlite:///{place}", connect_args={"timeout": LOCKED_SECONDS})
    # The driver would open a transaction only before the first write, too late to keep a second
    # process from migrating at the same time.
    event.listen(engine, "connect", disable_driver_transactions)
    event.listen(engine, "begin", begin_for_writing)
    return engine


def write_ahead(place: Path) -> None:
    """Switch an SQLite file to write-ahead logging, also while other processes do the same.

    SQLite does not wait for its busy timeout here: a switch that meets another one fails
    immediately (SQLite, "Write-Ahead Logging", on SQLITE_BUSY).

    Raises
    ------
    sqlite3.Error
        When the file cannot be used, or is locked for longer than other statements wait.
    """
    deadline = monotonic() + BUSY_SECONDS
    with closing(sqlite3.connect(place, timeout=LOCKED_SECONDS)) as connection:
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError:
                if monotonic() >= deadline:
                    raise
                sleep(SWITCH_SECONDS)
            else:
                return


class WritingInTurn(AsyncEngine):
    """An SQLite file whose writers in one process take turns.

    While SQLite waits for a lock it holds the connection's mutex, and a thread that releases a
    statement of that connection waits too. The garbage collector does that for statements that have
    failed, in whatever thread it runs: in the event loop's, it would stop the very transaction that
    has the lock, until the wait is over (https://sqlite.org/threadsafe.html, "serialized"). So
    writers of one process wait for each other here, and for those of others in short waits.
    """

    def __init__(self, sync_engine: Engine, availability: Availability) -> None:
        super().__init__(sync_engine)
        self._availability = availability
        self._turn = asyncio.Lock()

    @override
    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction that writes, and commit it at the end.

        Raises
        ------
        OperationalError
            When another process keeps the file locked for longer than `BUSY_SECONDS`.
        """
        async with self._turn, super().begin() as connection:
            deadline = monotonic() + BUSY_SECONDS
            while True:
                try:
                    await connection.exec_driver_sql("BEGIN IMMEDIATE")
                except OperationalError as error:
                    if not is_locked(error) or monotonic() >= deadline:
                        self._availability.lost(error)
                        raise
                else:
                    break
            yield connection


@contextmanager
def disposed(engine: Engine) -> Iterator[Engine]:
    """Close an engine's connections at the end."""
    try:
        yield engine
    finally:
        engine.dispose()


def disable_driver_transactions(connection: Any, _: object) -> None:
    """Disable the driver's own transactions, so that the engine begins them."""
    connection.isolation_level = None


def begin_for_writing(connection: Connection) -> None:
    """Take the write lock immediately, or wait for it in this thread."""
    deadline = monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        except OperationalError as error:
            if not is_locked(error) or monotonic() >= deadline:
                raise
        else:
            return


SWITCH_SECONDS = 0.05
"""Seconds between two attempts to switch a file to write-ahead logging."""
