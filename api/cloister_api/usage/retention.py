"""Deletes expired usage and audit rows, and proves that sums are the sums of events."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

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
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cloister_api.ledger.tables.core import AUDIT, KEY_TOTALS, SEQUENCES
from cloister_api.ledger.tables.usage import DELIVERIES, EVENTS, NAMES, POINTS, ROLLUPS, SUMS
from cloister_api.metering.store import check_runtime
from cloister_api.usage.dead_letters import sweep
from cloister_api.usage.levels import DAY, EVER, LEVELS, Level

__all__ = ["check", "prune", "prune_audit"]

PAGE = 5_000
"""Rows that one transaction deletes, to keep writers from waiting long."""
AHEAD_US = 600_000_000
"""How long before it happened an event may be received, by its reporter's clock."""
SHOWN = 5
"""Differences of one kind that a check reports."""
MARK = SEQUENCES.c.name == "events_deleted"


async def prune(engine: AsyncEngine, now: datetime, event_days: int) -> int:
    """Delete expired events, dead letters, buckets and nonces; several facades may do so at once.

    Parameters
    ----------
    engine
        The ledger.
    now
        Present time in UTC.
    event_days
        Days that events are kept.

    Returns
    -------
    int
        How many events were deleted.
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
    engine
        The ledger.
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
    engine
        The ledger.
    now
        Present time in UTC.

    Returns
    -------
    list of str
        The differences; empty = none.
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
