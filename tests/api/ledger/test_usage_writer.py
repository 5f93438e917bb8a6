"""Events are counted once, whatever happens: retries, two writers, kill -9, on both databases."""

import asyncio
import multiprocessing
import random
import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, func, select, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.bulk import insert_rows
from cloister_api.ledger.database import Place, open_to_read, open_writer
from cloister_api.ledger.keys.api_keys import ApiKeys
from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.ledger.tables import KEY_TOTALS
from cloister_api.ledger.usage_tables import EVENTS, NAMES, POINTS, ROLLUPS
from cloister_api.usage.prices import Price, import_prices
from cloister_api.usage.retention import check, prune
from cloister_api.usage.windows import EVER
from cloister_api.usage.writer import VerifiedReport
from tests.support.builders.usage import (
    delivery,
    event,
    key_in,
    some_events,
    write_until_killed,
    written,
)
from tests.support.servers.postgres import Postgres

NOW = datetime(2026, 11, 22, 4, 30, 2, tzinfo=UTC)
BEGINNING = datetime(2020, 1, 1, tzinfo=UTC)
KILLS = 50


def differences(place: Place, now: datetime = NOW) -> list[str]:
    """Compare sums and events."""
    engine = open_to_read(place)
    try:
        return check(engine, now)
    finally:
        engine.dispose()


async def totals(engine: AsyncEngine) -> dict[str, tuple[int, ...]]:
    """Return what the keys used, by their names."""
    found: dict[str, tuple[int, ...]] = {}
    async with engine.connect() as connection:
        rows = {row.key_id: row for row in (await connection.execute(select(KEY_TOTALS))).all()}
        keys = await connection.execute(text("SELECT id, name FROM api_keys"))
        for key_id, name in keys.all():
            row = rows.get(key_id)
            if row is not None:
                found[name] = (
                    row.input_tokens,
                    row.output_tokens,
                    row.cached_input_tokens,
                    row.requests,
                    row.cost,
                )
    return found


def expected(events: list[dict[str, Any]], names: dict[str, str]) -> dict[str, tuple[int, ...]]:
    """Add distinct events up in the plainest way."""
    sums: dict[str, list[int]] = {}
    for one in {each["event_id"]: each for each in events}.values():
        meters = {meter["name"]: meter["quantity"] for meter in one["meters"]}
        values = [meters[f"{kind}_tokens"] for kind in ("input", "output", "cached_input")]
        values += [one["customer_requests"], 0]
        own = sums.setdefault(names[one["api_key"]], [0] * 5)
        for place, value in enumerate(values):
            own[place] += value
    return {name: tuple(values) for name, values in sums.items()}


async def test_an_event_counts_in_every_sum(
    engine: AsyncEngine, place: Place, material: KeyMaterial
) -> None:
    key, value = await key_in(engine, material, "ci", NOW)
    price = Price("router", "model_request", "input_tokens", "", 150_000_000)
    await import_prices(engine, BEGINNING, (price,), NOW)
    at = NOW - timedelta(seconds=3)
    (outcome,) = written(place, material, delivery("d1", [event("e1", at, api_key=value)], NOW))
    assert (outcome.accepted, outcome.duplicates) == (1, 0)
    assert await totals(engine) == {"ci": (100, 10, 0, 1, 15_000)}
    async with engine.connect() as connection:
        levels = (await connection.execute(select(ROLLUPS).order_by(ROLLUPS.c.level))).all()
        points = (await connection.execute(select(POINTS).order_by(POINTS.c.level))).all()
        (row,) = (await connection.execute(select(EVENTS))).mappings().all()
    second = int(at.timestamp())
    for rows, sizes in (
        (levels, (5, 900, 3600, 86400, 8 * 86400, EVER)),
        (points, (5, 60, 900, 3600, 86400)),
    ):
        assert [(one.level, one.bucket) for one in rows] == [(n, second // n * n) for n in sizes]
    assert all((one.key_id, one.input_tokens) == (key.id, 100) for one in levels)
    assert row["price_version"] == 1
    assert value not in repr(dict(row))
    assert differences(place) == []


@pytest.mark.spec("26.6")
async def test_repeated_events_and_reports_count_once(
    engine: AsyncEngine, place: Place, material: KeyMaterial
) -> None:
    _, value = await key_in(engine, material, "ci", NOW)
    first = [event(f"e{n}", NOW, api_key=value) for n in range(4)]
    second = [*first[2:], event("e9", NOW, api_key=value), event("e9", NOW, api_key=value)]
    one, two = delivery("d1", first, NOW), delivery("d2", second, NOW)
    together = written(place, material, one, one, two)
    assert [(o.accepted, o.duplicates) for o in together] == [(4, 0), (0, 4), (1, 3)]
    again = written(place, material, two, one)
    assert [(o.accepted, o.duplicates) for o in again] == [(0, 4), (0, 4)]
    assert await totals(engine) == {"ci": (500, 50, 0, 5, 0)}
    assert differences(place) == []


@pytest.mark.spec("26.9")
async def test_a_nonce_with_another_body_is_taken_nothing_of(
    engine: AsyncEngine, place: Place, material: KeyMaterial
) -> None:
    _, value = await key_in(engine, material, "ci", NOW)
    one = delivery("d1", [event("e1", NOW, api_key=value)], NOW)
    other = delivery("d1", [event("e2", NOW, api_key=value)], NOW)
    assert [o.reused for o in written(place, material, one, other)] == [False, True]
    assert await totals(engine) == {"ci": (100, 10, 0, 1, 0)}


@pytest.mark.spec("26.11")
async def test_events_of_unknown_keys_are_kept_unattributed(
    engine: AsyncEngine, place: Place, material: KeyMaterial
) -> None:
    key, value = await key_in(engine, material, "gone", NOW)
    await ApiKeys(engine, material).delete(key.id, now=NOW)
    events = [
        event("e1", NOW, api_key=value),
        event("e2", NOW, api_key="tk_unknown"),
        event("e3", NOW),
    ]
    (outcome,) = written(place, material, delivery("d1", events, NOW))
    assert outcome.accepted == 3
    assert await totals(engine) == {"gone": (100, 10, 0, 1, 0)}
    async with engine.connect() as connection:
        query = select(EVENTS.c.key_id, EVENTS.c.key_index).order_by(EVENTS.c.id)
        rows = (await connection.execute(query)).all()
    assert [row.key_id for row in rows] == [key.id, None, None]
    assert [row.key_index for row in rows] == [None, material.index("tk_unknown"), None]
    assert differences(place) == []


@pytest.mark.spec("26.10")
async def test_late_events_land_in_their_own_buckets(
    engine: AsyncEngine, place: Place, material: KeyMaterial
) -> None:
    _, value = await key_in(engine, material, "ci", NOW)
    ages = {"now": 0, "hours": 4, "day": 30, "week": 8 * 24, "oldest": 90 * 24}
    for name, hours in ages.items():
        at = NOW - timedelta(hours=hours)
        written(place, material, delivery(name, [event(name, at, api_key=value)], NOW))
    async with engine.connect() as connection:
        counts = []
        for table in (ROLLUPS, POINTS):
            query = select(table.c.level, func.count()).group_by(table.c.level)
            counts.append({row[0]: row[1] for row in (await connection.execute(query)).all()})
    long = len({int((NOW - timedelta(hours=n)).timestamp()) // 691200 for n in ages.values()})
    assert counts[0] == {5: 1, 900: 3, 3600: 4, 86400: 4, 691200: long, EVER: 1}
    assert counts[1] == {5: 1, 60: 2, 900: 3, 3600: 4, 86400: 4}
    assert differences(place) == []


async def test_cost_is_fixed_by_the_price_of_its_time(
    engine: AsyncEngine, place: Place, material: KeyMaterial
) -> None:
    _, value = await key_in(engine, material, "ci", NOW)
    old = Price("router", "model_request", "output_tokens", "", 1_000_000_000)
    new = Price("router", "model_request", "output_tokens", "", 2_000_000_000)
    before = event("e0", NOW - timedelta(days=3), api_key=value)
    written(place, material, delivery("d0", [before], NOW))
    await import_prices(engine, NOW - timedelta(days=2), (old,), NOW)
    await import_prices(engine, NOW - timedelta(days=1), (new,), NOW)
    late = event("e1", NOW - timedelta(hours=25), api_key=value)
    fresh = event("e2", NOW, api_key=value)
    written(place, material, delivery("d1", [late, fresh], NOW))
    await import_prices(engine, NOW - timedelta(days=2), (new,), NOW)
    async with engine.connect() as connection:
        query = select(EVENTS.c.cost, EVENTS.c.price_version).order_by(EVENTS.c.id)
        rows = (await connection.execute(query)).all()
    assert [tuple(row) for row in rows] == [(0, None), (10_000, 1), (20_000, 2)]
    assert differences(place) == []


async def test_what_is_too_old_is_deleted_and_sums_by_day_stay(
    engine: AsyncEngine, place: Place, material: KeyMaterial
) -> None:
    _, value = await key_in(engine, material, "ci", NOW)
    old = NOW - timedelta(days=101)
    written(place, material, delivery("d1", [event("e1", old, api_key=value)], old))
    written(place, material, delivery("d2", [event("e2", NOW, api_key=value)], NOW))
    assert await prune(engine, NOW, 100) == 1
    assert await prune(engine, NOW, 100) == 0
    async with engine.connect() as connection:
        query = select(ROLLUPS.c.level).order_by(ROLLUPS.c.level, ROLLUPS.c.bucket)
        levels = [row.level for row in (await connection.execute(query)).all()]
        nonces = (await connection.execute(text("SELECT nonce FROM deliveries"))).all()
    assert levels == [5, 900, 3600, 86400, 86400, 691200, 691200, EVER]
    assert [row.nonce for row in nonces] == ["d2"]
    assert await totals(engine) == {"ci": (200, 20, 0, 2, 0)}
    assert differences(place) == []


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE usage_by_key SET cost = cost + 1 WHERE level = 900",
        "UPDATE usage_by_key SET cost = cost + 1 WHERE level = 691200",
        "UPDATE usage_points SET cost = cost + 1 WHERE level = 60",
        "UPDATE usage_points SET requests = 0 WHERE level = 86400",
        "UPDATE key_totals SET input_tokens = 1",
        "DELETE FROM usage_events",
    ],
)
async def test_a_check_finds_what_differs(
    engine: AsyncEngine, place: Place, material: KeyMaterial, damage: str
) -> None:
    _, value = await key_in(engine, material, "ci", NOW)
    written(place, material, delivery("d1", [event("e1", NOW, api_key=value)], NOW))
    async with engine.begin() as connection:
        await connection.execute(text(damage))
    assert differences(place) != []


async def test_two_writers_do_not_stand_in_each_others_way(
    engine: AsyncEngine, place: Place, material: KeyMaterial
) -> None:
    made = [await key_in(engine, material, f"k{n}", NOW) for n in range(5)]
    values = [value for _, value in made]
    events = [some_events(seed, 200, values, NOW) for seed in range(12)]
    reports = [delivery(f"d{n}", part, NOW) for n, part in enumerate(events)]

    def work(part: list[VerifiedReport]) -> int:
        return sum(sum(o.accepted for o in written(place, material, one)) for one in part)

    accepted = await asyncio.gather(
        *(asyncio.to_thread(work, part) for part in (reports[:8], reports[4:], reports[::-1]))
    )
    assert sum(accepted) == 12 * 200
    names = {value: key.name for key, value in made}
    assert await totals(engine) == expected([one for part in events for one in part], names)
    assert differences(place) == []


@pytest.mark.timeout(900)
async def test_kill_9_loses_nothing_acknowledged_and_counts_nothing_twice(
    engine: AsyncEngine, place: Place, material: KeyMaterial, tmp_path: Path
) -> None:
    made = [await key_in(engine, material, f"k{n}", NOW) for n in range(4)]
    values = [value for _, value in made]
    events = [some_events(seed, 30, values, NOW) for seed in range(40)]
    reports = [delivery(f"d{n}", part, NOW) for n, part in enumerate(events)]
    where = place.render_as_string(hide_password=False) if isinstance(place, URL) else str(place)
    answered = await asyncio.to_thread(kill_and_retry, where, str(tmp_path / "keys.json"), reports)
    names = {value: key.name for key, value in made}
    known = [one for number in answered for one in events[number]]
    assert await totals(engine) == expected(known, names)
    assert differences(place) == []


def kill_and_retry(where: str, keys: str, reports: list[VerifiedReport]) -> set[int]:
    """Kill the writer repeatedly; return the reports that are counted in the end."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["cloister_api.usage.writer", "cloister_api.ledger.database", "psycopg"]
    )
    chosen = random.Random(7)
    answered: set[int] = set()
    for kill in range(KILLS + 1):
        last = kill == KILLS
        # A reporter sends again what was not acknowledged, and now and then what was.
        wanted = [
            n for n in range(len(reports)) if last or n not in answered or chosen.random() < 0.2
        ]
        ours, theirs = context.Pipe()
        part = [reports[n] for n in wanted]
        process = context.Process(
            target=write_until_killed, args=(where, keys, part, chosen.choice([1, 3]), theirs)
        )
        process.start()
        theirs.close()
        deadline = time.monotonic() + chosen.random() * 0.1
        try:
            ready = ours.poll(60) and ours.recv() == "ready"
            assert ready
            deadline = time.monotonic() + chosen.random() * 0.1
            while last or time.monotonic() < deadline:
                if ours.poll(60 if last else 0.005):
                    told = ours.recv()
                    if told == "done":
                        break
                    answered.update(int(nonce.removeprefix("d")) for nonce in told)
        except EOFError:
            pass
        if not last:
            process.kill()
        process.join(60)
        ours.close()
    return answered


async def test_a_connection_that_ends_meanwhile_is_an_error_of_the_ledger(
    server: Postgres, material: KeyMaterial
) -> None:
    """Rows go past the engine into PostgreSQL: its errors must be those that callers know."""
    place = server.ledger()
    engine = open_writer(place)
    row = ("organization", "id-acme")

    def cut_off() -> None:
        with engine.begin() as connection:
            number = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            with server.admin() as admin:
                admin.execute("SELECT pg_terminate_backend(%s, 60000)", (number,))
            insert_rows(connection, NAMES, ("kind", "name"), [row])

    with pytest.raises(OperationalError):
        cut_off()
    for expected in (nullcontext(), pytest.raises(IntegrityError)):
        with expected, engine.begin() as connection:
            insert_rows(connection, NAMES, ("kind", "name"), [row])
    engine.dispose()


async def test_each_name_has_one_number(
    engine: AsyncEngine, place: Place, material: KeyMaterial
) -> None:
    _, value = await key_in(engine, material, "ci", NOW)
    written(place, material, delivery("d1", [event("e1", NOW, api_key=value)], NOW))
    written(place, material, delivery("d2", [event("e2", NOW, api_key=value)], NOW))
    async with engine.connect() as connection:
        rows = (await connection.execute(select(NAMES.c.kind, NAMES.c.name))).all()
    assert sorted(tuple(row) for row in rows) == [
        ("model", "north"),
        ("operation", "router/model_request"),
        ("organization", "id-acme"),
    ]
