"""A real PostgreSQL for tests: own data directory, Unix socket, never as root."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from sqlalchemy import URL

from cloister_api.ledger.database import migrate
from tests.support.waiting import until_sync

__all__ = ["Postgres", "postgres"]

INSTALL = "PostgreSQL is not installed; run `apt-get install postgresql`"
UNPRIVILEGED = ("postgres", "nobody")
"""Users to run the server as when the tests run as root, which PostgreSQL refuses."""
FASTER = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=64MB")
"""Settings of a database that survives a crash of the server, but not of the machine."""


def binaries() -> Path:
    """Return the directory of the server's programs.

    Raises
    ------
    RuntimeError
        When there is none.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    if initdb is None:
        raise RuntimeError(INSTALL)
    return Path(initdb).resolve().parent


def unprivileged() -> str | None:
    """Return the user to run as; None = the current one."""
    if os.geteuid() != 0:
        return None
    import pwd  # noqa: PLC0415 - not on every system

    for name in UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            pwd.getpwnam(name)
            return name
    raise RuntimeError("root needs a user postgres or nobody to start PostgreSQL as")


@dataclass
class Postgres:
    """A running server."""

    folder: Path
    """Directory of data and socket."""
    user: str | None
    """User that it runs as; None = the current one."""
    address: str = ""
    """Address of this machine that it listens on too; empty = its socket alone."""
    process: subprocess.Popen[bytes] | None = None
    """The server process."""
    template: str = ""
    """Template database with an empty ledger."""

    def url(self, database: str) -> URL:
        """Return the URL of a database for the ledger's settings."""
        return URL.create(
            "postgresql+psycopg",
            username="tester",
            database=database,
            query={"host": str(self.folder)},
        )

    def start(self) -> None:
        """Start it and wait until it responds."""
        settings = [
            f"unix_socket_directories={self.folder}",
            f"listen_addresses={self.address}",
            *FASTER,
        ]
        options = [part for setting in settings for part in ("-c", setting)]
        log = (self.folder / "log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [str(binaries() / "postgres"), "-D", str(self.folder / "data"), *options],
                user=self.user,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        until_sync(self.is_ready, what="PostgreSQL to respond")

    def is_ready(self) -> bool:
        """Return whether it accepts connections."""
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"PostgreSQL exited:  {(self.folder / 'log').read_text()[-2000:]}")
        with contextlib.suppress(psycopg.OperationalError), self.admin():
            return True
        return False

    def admin(self) -> psycopg.Connection:
        """Connect to the maintenance database."""
        return psycopg.connect(
            host=str(self.folder), user="tester", dbname="postgres", autocommit=True
        )

    def stop(self, number: int = signal.SIGINT) -> None:
        """Stop it; SIGQUIT has the effect of a crash."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(60)
            self.process = None

    def ledger(self) -> URL:
        """Create an empty ledger and return its URL."""
        with self.admin() as connection:
            if not self.template:
                self.template = self.empty()
                migrate(self.url(self.template))
            name = f"ledger_{secrets.token_hex(6)}"
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{self.template}"')
        return self.url(name)

    def empty(self) -> str:
        """Create an empty database and return its name."""
        name = f"empty_{secrets.token_hex(6)}"
        with self.admin() as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return name


@contextlib.contextmanager
def postgres(address: str = "") -> Iterator[Postgres]:
    """Run a server until the block ends; on an address, its clients there are trusted too."""
    user = unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="cloister-postgres-"))
    try:
        if user is not None:
            shutil.chown(folder, user)
        made = subprocess.run(
            [
                str(binaries() / "initdb"),
                *("-D", str(folder / "data"), "-U", "tester", "-A", "trust"),
                *("-E", "UTF8", "--locale=C", "--no-sync"),
            ],
            check=False,
            user=user,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if made.returncode:
            raise RuntimeError(f"initdb: {made.stderr}")
        if address:
            with (folder / "data" / "pg_hba.conf").open("a") as access:
                access.write("host all all all trust\n")
        running = Postgres(folder, user, address)
        running.start()
        try:
            yield running
        finally:
            running.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
