"""Sums of utilization on both databases: added, read as series, deleted, and who collects."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.leases import Lease
from cloister_api.ledger.usage_tables import NAMES, UTILIZATION
from cloister_api.usage.windows import WINDOWS
from cloister_api.utilization.buckets import SeriesKey, UsageInterval, add_interval
from cloister_api.utilization.store import NOTHING, UtilizationStore

NOW = datetime(2026, 11, 22, 4, 30, 2, tzinfo=UTC)


def stretches(name: str, begin: datetime, count: int, cpu: float) -> Any:
    """Make sums of stretches of 15 s in a row, on 2 processors and 8 GB half used."""
    sums: dict[tuple[int, SeriesKey, int], list[int]] = {}
    container = ("acme", name)
    for number in range(count):
        at = begin.timestamp() + 15 * number
        add_interval(sums, UsageInterval(container, at, at + 15, cpu, 2, 4 << 20, 8 << 20))
    return sums


async def test_a_series_shows_what_was_added_and_null_elsewhere(
    engine: AsyncEngine, second: AsyncEngine
) -> None:
    series, other = UtilizationStore(engine), UtilizationStore(second)
    await series.add(stretches("one", NOW - timedelta(minutes=3), 8, cpu=1))
    await other.add(stretches("one", NOW - timedelta(minutes=1), 4, cpu=0.5))
    await other.add(stretches("two", NOW - timedelta(minutes=1), 4, cpu=2))
    for name, window in WINDOWS.items():
        found = await series.of(("acme", "one"), window, NOW)
        points = found.model_dump()["data_points"]
        assert len(points) == window.seconds // window.interval
        known = [point for point in points if point["cpu_util"] is not None]
        assert known, name
        for point in known:
            assert 25 <= point["cpu_util"] <= 50
            assert (point["cpu_mem_util"], point["cpu_mem_total"]) == (50, 8)
        silent = (set(one.items()) - {("time", one["time"])} for one in points if one not in known)
        assert all(one == set(NOTHING.items()) for one in silent)
    finest = (await series.of(("acme", "one"), WINDOWS["5m"], NOW)).model_dump()["data_points"]
    assert [point["cpu_util"] for point in finest] == [None] * 23 + [50.0] * 24 + [35.0] + [
        25.0
    ] * 12
    assert finest[-1]["time"] == "2026-11-22T04:30:00Z"
    (day,) = [
        point for point in (await series.of(("acme", "one"), WINDOWS["90d"], NOW)).data_points
        if point.cpu_util is not None
    ]  # fmt: skip
    assert day.cpu_util == 41.67
    nobody = (await series.of(("acme", "nobody"), WINDOWS["1h"], NOW)).data_points
    assert all(point.cpu_util is None for point in nobody)
    elsewhere = (await series.of(("evil", "one"), WINDOWS["1h"], NOW)).data_points
    assert all(point.cpu_util is None for point in elsewhere), "series belong to an organization"


async def test_series_of_the_release_before_are_shown_on(engine: AsyncEngine) -> None:
    """They have the identifier of the container alone as their name."""
    series = UtilizationStore(engine)
    await series.add(stretches("one", NOW - timedelta(minutes=3), 4, cpu=1))
    async with engine.begin() as connection:
        await connection.execute(update(NAMES).values(name="one"))
    later = UtilizationStore(engine)
    await later.add(stretches("one", NOW - timedelta(minutes=1), 4, cpu=1))
    found = (await later.of(("acme", "one"), WINDOWS["5m"], NOW)).data_points
    assert sum(point.cpu_util == 50 for point in found) == 26, "13 points of each"


async def test_what_the_ledger_refuses_of_one_container_costs_no_other(
    engine: AsyncEngine,
) -> None:
    sums = stretches("one", NOW - timedelta(minutes=1), 4, cpu=1)
    sums |= stretches("two\x00" + "x" * 300, NOW - timedelta(minutes=1), 4, cpu=1)
    sums |= stretches("zzz", NOW - timedelta(minutes=1), 4, cpu=1)
    series = UtilizationStore(engine)
    await series.add(sums)
    for name in ("one", "zzz"):
        found = (await series.of(("acme", name), WINDOWS["5m"], NOW)).data_points
        assert any(point.cpu_util == 50 for point in found), name


async def test_buckets_go_when_no_window_shows_them(engine: AsyncEngine) -> None:
    series = UtilizationStore(engine)
    await series.add(stretches("one", NOW, 4, cpu=1))

    async def levels() -> list[int]:
        query = select(UTILIZATION.c.level, func.count()).group_by(UTILIZATION.c.level)
        async with engine.connect() as connection:
            return sorted(row.level for row in (await connection.execute(query)).all())

    assert await levels() == [5, 60, 900, 3600, 86400]
    for age, kept in (
        (timedelta(minutes=39), [5, 60, 900, 3600, 86400]),
        (timedelta(hours=1), [60, 900, 3600, 86400]),
        (timedelta(days=1), [900, 3600, 86400]),
        (timedelta(days=34), [3600, 86400]),
        (timedelta(days=99), [86400]),
        (timedelta(days=102), []),
    ):
        await series.prune(NOW + age)
        assert await levels() == kept


async def test_one_facade_at_a_time_collects(engine: AsyncEngine, second: AsyncEngine) -> None:
    one = Lease(engine, "utilization", "one", 60)
    two = Lease(second, "utilization", "two", 60)
    assert await one.hold(NOW)
    assert not await two.hold(NOW + timedelta(seconds=59))
    assert await one.hold(NOW + timedelta(seconds=59))
    assert not await two.hold(NOW + timedelta(seconds=118))
    assert await two.hold(NOW + timedelta(seconds=120))
    assert not await one.hold(NOW + timedelta(seconds=120))
