"""Whether the ledger responds: which errors mean that it does not, and the log of its changes."""

import logging
import sqlite3

from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_crds.backoff import Backoff

logger = logging.getLogger(__name__)

SQLITE_AWAY = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)
"""Primary result codes of a file that cannot be used at present."""
READ_ONLY = "25006"
"""SQLSTATE of a write to a server that follows another one."""


def poll_backoff(every: float) -> Backoff:
    """Return the delays of a loop that polls the ledger, while it does not respond."""
    return Backoff(every, longest=5.0, jitter=(0.5, 1.0))


def is_away(error: BaseException | None) -> bool:
    """Return whether an error means that the ledger cannot be used at present."""
    if isinstance(error, PoolTimeoutError):  # no connection became free
        return True
    if not isinstance(error, DBAPIError):
        return False
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in SQLITE_AWAY
    if getattr(error.orig, "sqlstate", None) == READ_ONLY:
        return True
    return error.connection_invalidated or isinstance(error, (OperationalError, InterfaceError))


def reason_of(error: BaseException) -> str:
    """Return the first line of what the database or its driver reports."""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def is_news(record: logging.LogRecord) -> bool:
    """Return whether a line of the log is to be written.

    One with the exception of a ledger that is away is not: each background task and request would
    write it again, and `Availability` has logged it once.
    """
    return record.exc_info is None or not is_away(record.exc_info[1])


class Availability:
    """Logs when the ledger stops responding, and when it can be written again."""

    def __init__(self) -> None:
        self._away = False

    def follow(self, engine: AsyncEngine) -> None:
        """Listen to what an engine's connections meet."""
        event.listen(engine.sync_engine, "handle_error", self._failed)
        # What is read proves nothing: a disk may be full, a server a follower.
        event.listen(engine.sync_engine, "commit", self._committed)

    def lost(self, error: BaseException) -> None:
        """Log that the ledger cannot be used, unless that is known."""
        if not self._away:
            self._away = True
            logger.warning(
                "the ledger is away: %s; writes are refused with 503 until it responds",
                reason_of(error),
            )

    def _failed(self, context: ExceptionContext) -> None:
        error = context.sqlalchemy_exception
        # A connection that is checked before its use is replaced, and a locked file waited for.
        if error is None or context.is_pre_ping or is_locked(error) or not is_away(error):
            return
        self.lost(error)

    def _committed(self, _: object) -> None:
        if self._away:
            self._away = False
            logger.warning("the ledger responds again")


def is_locked(error: BaseException) -> bool:
    """Return whether an error of SQLite means that somebody else has the lock."""
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", 0)
    return bool(code & 0xFF == sqlite3.SQLITE_BUSY)
