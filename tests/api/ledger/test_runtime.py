"""Run time on both databases: exact whatever is repeated, late, or corrected."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from sqlalchemy import URL, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.database import Place, open_to_read
from cloister_api.ledger.tables import RUNTIME_ENCLAVES, RUNTIME_SLICES
from cloister_api.metering.store import SECONDS, MeteringStore, ServedEnclave, check_runtime, unfit

WIDTH = SECONDS * 1_000_000
START = 1_700_000_100_000_000
SEEDS = range(12)


def served(enclave: str, begin: int, end: int | None, container: str = "c") -> ServedEnclave:
    return ServedEnclave(enclave, "acme", container, "web", 2, 8192, 1, begin, end)


def problems(place: Place) -> list[str]:
    """Return what the check finds."""
    engine = open_to_read(place)
    try:
        with engine.connect() as connection:
            return list(check_runtime(connection))
    finally:
        engine.dispose()


async def total(engine: AsyncEngine) -> dict[str, int]:
    """Return the sum of each enclave's slices."""
    one = RUNTIME_SLICES.c
    query = select(one.enclave, func.sum(one.microseconds)).group_by(one.enclave)
    async with engine.connect() as connection:
        return {uid: int(found) for uid, found in (await connection.execute(query)).all()}


def lives(chosen: random.Random) -> Sequence[ServedEnclave]:
    """Make enclaves of one container, each beginning when the one before ended or later."""
    made, at = [], START + chosen.randrange(WIDTH)
    for number in range(5):
        end = at + chosen.choice([0, 1, 7_000_000, WIDTH - 1, WIDTH, chosen.randrange(9 * WIDTH)])
        made.append(served(f"e{number}", at, end))
        at = end + chosen.choice([0, 0, 1, 40_000_000])
    return made


async def test_the_sum_is_what_was_served_however_it_was_seen(
    engine: AsyncEngine, second: AsyncEngine, place: Place
) -> None:
    """A model of two facades that meter at random times, with stale caches, in any order."""
    for seed in SEEDS:
        chosen = random.Random(seed)
        truth = lives(chosen)
        stores = [MeteringStore(engine), MeteringStore(second)]
        for _ in range(12):
            now = START + chosen.randrange(40 * WIDTH)
            # A cache lags: it shows an enclave as serving that has ceased to, or not at all.
            seen = [
                replace(one, end=None) if chosen.random() < 0.6 else one
                for one in truth
                if one.begin <= now and chosen.random() < 0.7
            ]
            await chosen.choice(stores).meter(seen, now)
        now = START + 50 * WIDTH
        for store in (*stores, *stores):
            states = await store.meter(truth, now)
            assert all(closed for _, closed in states.values())
        wanted = {
            one.enclave: one.end - one.begin for one in truth if one.end and one.end > one.begin
        }
        assert await total(engine) == wanted, seed
        assert problems(place) == []
        async with engine.begin() as connection:
            await connection.execute(delete(RUNTIME_SLICES))
            await connection.execute(delete(RUNTIME_ENCLAVES))


async def test_what_serves_is_metered_slice_by_slice(engine: AsyncEngine) -> None:
    store, begin = MeteringStore(engine), START + 10_000_000
    await store.meter([served("e", begin, None)], begin + 1_000_000)
    assert await total(engine) == {}
    for step in range(1, 5):
        now = START + step * WIDTH + 5
        states = await store.meter([served("e", begin, None)], now)
        assert states == {"e": (now // WIDTH * WIDTH, False)}
        assert await total(engine) == {"e": now // WIDTH * WIDTH - begin}


async def test_an_end_before_the_present_takes_back_what_was_too_much(
    engine: AsyncEngine, place: Place
) -> None:
    """The node was lost, which was noticed later: time ends with its last heartbeat."""
    store = MeteringStore(engine)
    await store.meter([served("e", START, None)], START + 6 * WIDTH)
    end = START + WIDTH + 3
    await store.meter([served("e", START, end)], START + 7 * WIDTH)
    assert await total(engine) == {"e": end - START}
    await store.meter([served("e", START, None)], START + 9 * WIDTH)
    assert await total(engine) == {"e": end - START}, "an old view adds nothing to what is closed"
    assert problems(place) == []


async def test_run_time_is_summed_by_container_and_size(engine: AsyncEngine) -> None:
    store = MeteringStore(engine)
    other = replace(served("e3", START, START + 9, container="d"), organization="other")
    bigger = replace(served("e2", START + WIDTH, START + 2 * WIDTH), cpus=4)
    lived = [served("e1", START, START + WIDTH), bigger, other]
    await store.meter(lived, START + 9 * WIDTH)
    found = await store.of("acme", 0, START // 1_000_000 + 9 * SECONDS)
    assert [(one.container, one.cpus, one.microseconds) for one in found] == [
        ("c", 2, WIDTH),
        ("c", 4, WIDTH),
    ]
    assert await store.of("acme", 0, START // 1_000_000 - 2 * SECONDS) == []


async def test_what_the_ledger_refuses_of_one_enclave_costs_no_other(
    engine: AsyncEngine, place: Place
) -> None:
    """PostgreSQL refuses what is too long, or has a NUL character; SQLite takes it."""
    store, end = MeteringStore(engine), START + WIDTH
    bad = served("e2", START, end, container="x" * 300)
    worse = served("e3", START, end, container="\x00")
    states = await store.meter(
        [served("e1", START, end), bad, worse, served("e4", START, end)], end
    )
    assert states["e1"] == states["e4"] == (end, True)
    if isinstance(place, URL):
        assert states.keys() == {"e1", "e4"}
    assert (await total(engine))["e4"] == WIDTH


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"container": "x" * 65}, "container"),
        ({"organization": "a\x00"}, "organization"),
        ({"gpus": -1}, "gpus"),
        ({"memory_mb": 2**31}, "memory_mb"),
    ],
)
def test_what_no_ledger_has_room_for_is_told_by_name(
    change: dict[str, str | int], field: str
) -> None:
    one = served("e", START, None)
    assert unfit(one) == ""
    assert unfit(replace(one, **change)).startswith(field)  # type: ignore[arg-type]  # fields by name


async def test_what_cannot_be_is_found(engine: AsyncEngine, place: Place) -> None:
    store = MeteringStore(engine)
    await store.meter([served("e", START, START + 2 * WIDTH)], START + 9 * WIDTH)
    assert problems(place) == []
    async with engine.begin() as connection:
        await connection.execute(update(RUNTIME_SLICES).values(microseconds=WIDTH + 1))
    assert any("an impossible sum" in one for one in problems(place))
    async with engine.begin() as connection:
        await connection.execute(update(RUNTIME_SLICES).values(microseconds=1))
        late = {"id": b"x", "enclave": "e", "begin": START // 1_000_000 + 9 * SECONDS}
        await connection.execute(insert(RUNTIME_SLICES).values(**late, microseconds=1))
    assert problems(place) == ["run time: enclave e has slices after its end, or is not known"]
