"""Dead letters: usage events that could not be counted, kept with their reason, within bounds.

A reporter takes the response for "counted" and never sends an event again, so that the ledger is
the only place where it can still be found. A key that an event names is kept as its index.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, delete, func, insert, select, update

from cloister_api.ledger.bulk import insert_rows, known
from cloister_api.ledger.tables.core import API_KEYS
from cloister_api.ledger.tables.usage import DEAD_LETTERS, DEAD_LETTERS_LOST
from cloister_api.usage.events import RejectedEvent

__all__ = ["DeadLetter", "describe", "keep", "kept", "sweep"]

MOST_EVENTS: Final = 2_000
"""Dead letters of one reporter."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the dead letters of one reporter."""
EVENT_LENGTH: Final = 4_096
"""Longest text of an event."""
REASON_LENGTH: Final = 500
"""Longest reason."""
SHOWN: Final = 20
"""Reasons that a check shows."""
API_KEY = re.compile(r"(tk_|admin_)[0-9A-Za-z]{36}")
"""Keys, wherever a reporter may have put them."""
COLUMNS = ("letter_key", "reporter", "received_at", "key_index", "reason", "event", "size")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that could not be counted."""

    reporter: str
    """Its reporter."""
    received_at: datetime
    """When it was received."""
    reason: str
    """Why it was not counted."""
    key: int | None
    """Number of the API key that it names; None = none, or an unknown one."""
    event: str
    """The event without its key, cut at `EVENT_LENGTH`; empty = it could not be read."""


def keep(
    connection: Connection,
    reporter: str,
    received_at: int,
    rejected: Sequence[RejectedEvent],
    index_of: Callable[[str], bytes],
) -> None:
    """Keep what was rejected of a report, each event once and as far as there is room.

    Parameters
    ----------
    connection
        Connection in a transaction that is serialized with those of other reports.
    reporter
        The reporter.
    received_at
        When the report was received, in microseconds.
    rejected
        The events.
    index_of
        Returns the index of a key.
    """
    same = DEAD_LETTERS.c.reporter == reporter
    sums = select(func.count(), func.coalesce(func.sum(DEAD_LETTERS.c.size), 0)).where(same)
    count, size = connection.execute(sums).one()
    events = {letter_key(reporter, each.event): each for each in rejected}
    for key in known(connection, DEAD_LETTERS, "letter_key", list(events)):
        del events[key]
    rows: list[tuple[Any, ...]] = []
    for key, each in events.items():
        if count >= MOST_EVENTS or size >= MOST_BYTES:
            break
        index, event = without_key(each.event, index_of)
        reason = storable(each.reason)[:REASON_LENGTH]
        own = len(reason.encode()) + len(event.encode())
        rows.append((key, reporter, received_at, index, reason, event, own))
        count, size = count + 1, size + own
    insert_rows(connection, DEAD_LETTERS, COLUMNS, rows)
    if lost := len(events) - len(rows):
        count_lost(connection, reporter, received_at, lost)


def letter_key(reporter: str, event: bytes) -> bytes:
    """Return a short digest by which an event is kept once."""
    return hashlib.blake2b(reporter.encode() + b"\0" + event, digest_size=16).digest()


def without_key(event: bytes, index_of: Callable[[str], bytes]) -> tuple[bytes | None, str]:
    """Return the index of the key that an event names, and the event without any key."""
    try:
        value = msgspec.json.decode(event)
        key = value.pop("api_key", None) if isinstance(value, dict) else None
        text = msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None, ""
    index = index_of(key) if isinstance(key, str) and key else None
    return index, API_KEY.sub(r"\1…", storable(text))[:EVENT_LENGTH]


def storable(text: str) -> str:
    """Replace what a database does not store."""
    return text.replace("\x00", "\ufffd").encode(errors="replace").decode()


def count_lost(connection: Connection, reporter: str, at: int, events: int) -> None:
    """Count events that found no room."""
    table = DEAD_LETTERS_LOST
    same = table.c.reporter == reporter
    more = update(table).where(same).values(events=table.c.events + events, last_at=at)
    if not connection.execute(more).rowcount:
        connection.execute(insert(table).values(reporter=reporter, events=events, last_at=at))


def sweep(before_us: int) -> Iterator[Any]:
    """Yield the statements that delete what was received before a time in microseconds."""
    yield delete(DEAD_LETTERS).where(DEAD_LETTERS.c.received_at < before_us)
    yield delete(DEAD_LETTERS_LOST).where(DEAD_LETTERS_LOST.c.last_at < before_us)


def describe(connection: Connection) -> list[str]:
    """Describe the dead letters by reporter and reason, the most frequent first."""
    table = DEAD_LETTERS
    many = func.count().label("many")
    query = (
        select(table.c.reporter, table.c.reason, many, func.max(table.c.received_at).label("last"))
        .group_by(table.c.reporter, table.c.reason)
        .order_by(many.desc(), table.c.reporter, table.c.reason)
    )
    groups = connection.execute(query).all()
    lines = [
        f"not counted: {row.many} of {row.reporter}, last {moment(row.last)}: {row.reason}"
        for row in groups[:SHOWN]
    ]
    if len(groups) > SHOWN:
        lines.append(f"not counted: {len(groups) - SHOWN} more reasons")
    lost = connection.execute(select(DEAD_LETTERS_LOST).order_by("reporter")).all()
    return lines + [
        f"not counted and not kept: {row.events} of {row.reporter}, last {moment(row.last_at)}: "
        "its dead letters are full"
        for row in lost
    ]


def kept(connection: Connection) -> Iterable[DeadLetter]:
    """Yield the dead letters, oldest first."""
    query = (
        select(DEAD_LETTERS, API_KEYS.c.id.label("number"))
        .outerjoin(API_KEYS, API_KEYS.c.key_index == DEAD_LETTERS.c.key_index)
        .order_by(DEAD_LETTERS.c.id)
    )
    for row in connection.execute(query):
        yield DeadLetter(row.reporter, moment(row.received_at), row.reason, row.number, row.event)


def moment(at_us: int) -> datetime:
    """Return a time that is kept in microseconds, without its fraction."""
    return datetime.fromtimestamp(at_us // 1_000_000, UTC)
