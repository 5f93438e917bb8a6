"""Retention of usage: expired rows, dead letters, and the proof that sums are right."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Engine,
    Select,
    Table,
    delete,
    except_,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cloister_api.ledger.bulk import insert_rows, known
from cloister_api.ledger.tables import API_KEYS, AUDIT, KEY_TOTALS, SEQUENCES
from cloister_api.ledger.usage_tables import (
    DEAD_LETTERS,
    DEAD_LETTERS_LOST,
    DELIVERIES,
    EVENTS,
    NAMES,
    POINTS,
    ROLLUPS,
    SUMS,
)
from cloister_api.metering.store import check_runtime
from cloister_api.usage.events import RejectedEvent
from cloister_api.usage.windows import DAY, EVER, LEVELS, Level

MOST_EVENTS: Final = 2_000
"""Dead letters of one reporter."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the dead letters of one reporter."""
EVENT_LENGTH: Final = 4_096
"""Longest text of an event."""
REASON_LENGTH: Final = 500
"""Longest reason."""
SHOWN_EVENTS: Final = 20
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
    """Number of the API key that it names; None if there is none, or an unknown one."""
    event: str
    """The event without its key, cut at `EVENT_LENGTH`; empty if it could not be read."""


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
    received_at
        When the report was received, in microseconds.
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
        for row in groups[:SHOWN_EVENTS]
    ]
    if len(groups) > SHOWN_EVENTS:
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


PAGE = 5_000
"""Rows that one transaction deletes, to keep writers from waiting long."""
AHEAD_US = 600_000_000
"""How long before it happened an event may be received, by its reporter's clock."""
SHOWN = 5
"""Differences of one kind that a check reports."""
MARK = SEQUENCES.c.name == "events_deleted"


async def prune(engine: AsyncEngine, now: datetime, event_days: int) -> int:
    """Delete expired events, dead letters, buckets and nonces; several facades may do so.

    Parameters
    ----------
    now
        Present time in UTC.
    """
    now_us = round(now.timestamp() * 1_000_000)
    before = now_us - event_days * DAY * 1_000_000
    deleted = await prune_events(engine, before)
    organizations = select(NAMES.c.id).where(NAMES.c.kind == "organization")
    async with engine.begin() as connection:
        await wait_for_writers(connection)
        day = DAY * 1_000_000
        await connection.execute(delete(DELIVERIES).where(DELIVERIES.c.received_at < now_us - day))
        for statement in sweep(before):
            await connection.execute(statement)
        for level in LEVELS:
            if level.keep is None:
                continue
            oldest = now_us // 1_000_000 - level.keep
            for table in (ROLLUPS, POINTS):
                await connection.execute(
                    delete(table).where(
                        table.c.level == level.seconds,
                        table.c.organization.in_(organizations),
                        table.c.bucket < oldest,
                    )
                )
    return deleted


async def prune_audit(engine: AsyncEngine, before: datetime) -> int:
    """Delete rows of the audit trail of before a time, and return how many.

    Parameters
    ----------
    before
        Rows from then on are kept, in UTC.
    """
    deleted = 0
    while True:
        oldest = select(AUDIT.c.id).order_by(AUDIT.c.id).limit(PAGE)
        old = AUDIT.c.id.in_(oldest.scalar_subquery()) & (AUDIT.c.at < before)
        async with engine.begin() as connection:
            done = await connection.execute(delete(AUDIT).where(old))
        deleted += done.rowcount
        if done.rowcount < PAGE:
            return deleted


async def prune_events(engine: AsyncEngine, before_us: int) -> int:
    """Delete events that were received before a time, in the order of their numbers."""
    deleted = 0
    while True:
        oldest = select(EVENTS.c.id).order_by(EVENTS.c.id).limit(PAGE)
        old = EVENTS.c.id.in_(oldest.scalar_subquery()) & (EVENTS.c.received_at < before_us)
        async with engine.begin() as connection:
            await wait_for_writers(connection)
            later = SEQUENCES.c.value < before_us
            await connection.execute(update(SEQUENCES).where(MARK, later).values(value=before_us))
            done = await connection.execute(delete(EVENTS).where(old))
        deleted += done.rowcount
        if done.rowcount < PAGE:
            return deleted


async def wait_for_writers(connection: AsyncConnection) -> None:
    """Serialize this transaction with the writers of usage, which prevents deadlocks."""
    same = SEQUENCES.c.value
    await connection.execute(
        update(SEQUENCES).where(SEQUENCES.c.name == "usage").values(value=same)
    )


def check(engine: Engine, now: datetime) -> list[str]:
    """Compare sums with events, and sums with each other, at one moment.

    Sums are compared with events as far back as the events and the buckets of each size are kept;
    totals of keys with the sums by day, which are kept for ever.

    Parameters
    ----------
    now
        Present time in UTC.

    Returns
    -------
    list of str
        The differences; empty if there is none.
    """
    if engine.dialect.name != "sqlite":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        found: list[str] = []
        deleted = int(connection.execute(select(SEQUENCES.c.value).where(MARK)).scalar_one())
        for level in LEVELS:
            found += level_differences(connection, level, now, deleted)
        found += long_differences(connection)
        found += total_differences(connection)
        found += check_runtime(connection)
    return found


def level_differences(
    connection: Connection, level: Level, now: datetime, deleted: int
) -> Iterator[str]:
    """Find differences of one size of buckets."""
    start = (deleted + AHEAD_US) // 1_000_000 + level.seconds if deleted else 0
    if level.keep is not None:
        start = max(start, int(now.timestamp()) - level.keep)
    what = f"sums of {level.seconds} s"
    if level.by_key:
        columns = [ROLLUPS.c[name] for name in ("organization", "bucket", "key_id", "model", *SUMS)]
        rollups = select(*columns).where(
            ROLLUPS.c.level == level.seconds, ROLLUPS.c.bucket >= start
        )
        events = events_at(level, start, (EVENTS.c.key_id, EVENTS.c.model))
        yield from differences(connection, events, rollups, f"{what}: events and keys")
    if level.points:
        columns = [POINTS.c[name] for name in ("organization", "bucket", "model", *SUMS)]
        points = select(*columns).where(POINTS.c.level == level.seconds)
        if level.by_key:
            by_model = (ROLLUPS.c.organization, ROLLUPS.c.bucket, ROLLUPS.c.model)
            at_level = ROLLUPS.c.level == level.seconds
            wanted = select(*by_model, *added(ROLLUPS)).where(at_level).group_by(*by_model)
        else:
            points = points.where(POINTS.c.bucket >= start)
            wanted = events_at(level, start, (EVENTS.c.model,))
        source = "keys" if level.by_key else "events"
        yield from differences(connection, wanted, points, f"{what}: {source} and time series")


def events_at(level: Level, start: int, by: tuple[ColumnElement[Any], ...]) -> Select[Any]:
    """Build the query of the sums of events in buckets of a size, from a second on."""
    width = level.seconds * 1_000_000
    bucket = EVENTS.c.occurred_at // width * level.seconds
    events = (
        select(EVENTS.c.organization, bucket.label("bucket"), *by, *added(EVENTS))
        .where(EVENTS.c.organization.is_not(None), bucket >= start)
        .group_by(EVENTS.c.organization, bucket, *by)
    )
    if level.keep is None:
        return events
    return events.where(EVENTS.c.occurred_at >= EVENTS.c.received_at - level.keep * 1_000_000)


def long_differences(connection: Connection) -> Iterator[str]:
    """Find sums of several days that are not the sums of their days, which are kept for ever."""
    for level in LEVELS:
        if not level.by_key or not DAY < level.seconds < EVER:
            continue
        bucket = ROLLUPS.c.bucket // level.seconds * level.seconds
        place = (ROLLUPS.c.organization, bucket, ROLLUPS.c.key_id, ROLLUPS.c.model)
        days = select(*place, *added(ROLLUPS)).where(ROLLUPS.c.level == DAY).group_by(*place)
        columns = [ROLLUPS.c[name] for name in ("organization", "bucket", "key_id", "model", *SUMS)]
        long = select(*columns).where(ROLLUPS.c.level == level.seconds)
        yield from differences(connection, days, long, f"sums of {level.seconds} s: days and keys")


def total_differences(connection: Connection) -> Iterator[str]:
    """Find keys whose totals are not their sums by day, or not their sums of all time."""
    totals = select(KEY_TOTALS.c.key_id, *(KEY_TOTALS.c[name] for name in SUMS))
    for size, name in ((DAY, "days"), (EVER, "all time")):
        sums = (
            select(ROLLUPS.c.key_id, *added(ROLLUPS))
            .where(ROLLUPS.c.level == size)
            .group_by(ROLLUPS.c.key_id)
        )
        yield from differences(connection, sums, totals, f"totals of keys: {name} and totals")


def added(table: Table) -> list[Any]:
    """Return the sums of a table's columns."""
    return [func.sum(table.c[name]).label(name) for name in SUMS]


def differences(
    connection: Connection, one: Select[Any], other: Select[Any], what: str
) -> Iterator[str]:
    """Describe rows that are only on one side."""
    for left, right, side in ((one, other, "first"), (other, one, "second")):
        difference: CompoundSelect[Any] = except_(left, right).limit(SHOWN)
        for row in connection.execute(difference).mappings():
            values = ", ".join(f"{name} {value}" for name, value in row.items())
            yield f"{what}: only in the {side}: {values}"
