"""The newest answers of makers in the ledger, which replicas offer to it at once."""

import asyncio
import random
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.collateral import newest as store
from cloister_api.collateral.newest import CollateralAnswer, NewestCollateral
from cloister_api.ledger.tables.collateral import COLLATERAL_ANSWERS

NOW = datetime(2026, 11, 28, 1, 0, tzinfo=UTC)
ADDRESS = "https://kdsintf.amd.com/vcek/v1/Milan/crl"


def answer(
    edition: int, *, signed: bool = True, body: bytes = b"", age: timedelta = timedelta()
) -> CollateralAnswer:
    """Return an answer of an edition, valid for 30 days."""
    return CollateralAnswer(
        edition=f"{signed:d}.{edition:049d}.{0:049d}",
        body=body or b"list %d" % edition,
        headers={"sgx-pck-crl-issuer-chain": "%0A"},
        fetched_at=NOW - age,
        valid_until=NOW - age + timedelta(days=30),
    )


async def test_what_was_kept_is_read_by_every_replica(
    engine: AsyncEngine, second: AsyncEngine
) -> None:
    here, there = NewestCollateral(engine), NewestCollateral(second)
    assert await here.newer(ADDRESS, None) is None
    assert await here.offer(ADDRESS, answer(1), NOW) is None
    assert await there.newer(ADDRESS, None) == answer(1)
    assert await there.newer(ADDRESS, answer(1)) is None
    assert await there.newer(ADDRESS, answer(0)) == answer(1)
    assert await there.newer(ADDRESS, answer(2)) is None
    assert await there.newer(ADDRESS + "x", None) is None


@pytest.mark.parametrize("signed", [True, False])
async def test_only_what_is_older_is_refused(engine: AsyncEngine, *, signed: bool) -> None:
    newest = NewestCollateral(engine)
    assert await newest.offer(ADDRESS, answer(5, signed=signed), NOW) is None
    assert await newest.offer(ADDRESS, answer(4, signed=signed), NOW) == answer(5, signed=signed)
    again = answer(5, signed=signed, body=b"the same edition")
    assert await newest.offer(ADDRESS, again, NOW) is None
    assert await newest.newer(ADDRESS, None) == again
    if signed:
        assert await newest.offer(ADDRESS, answer(9, signed=False), NOW) == again
    else:
        assert await newest.offer(ADDRESS, answer(1), NOW) is None


async def test_an_answer_that_ended_gives_way(engine: AsyncEngine) -> None:
    newest = NewestCollateral(engine)
    ended = answer(5, age=timedelta(days=30))
    await newest.offer(ADDRESS, ended, NOW - timedelta(days=30))
    assert await newest.offer(ADDRESS, answer(4), NOW - timedelta(seconds=1)) == ended
    assert await newest.offer(ADDRESS, answer(4), NOW) is None


async def test_of_answers_that_come_at_once_the_newest_stays(
    engine: AsyncEngine, second: AsyncEngine
) -> None:
    """Also where none was there before, so that several replicas insert."""
    replicas = [NewestCollateral(each) for each in (engine, second)]
    for attempt in range(8):
        address, editions = f"{ADDRESS}?{attempt}", list(range(8))
        random.shuffle(editions)
        refused = await asyncio.gather(
            *(
                replicas[number % 2].offer(address, answer(edition), NOW)
                for number, edition in enumerate(editions)
            )
        )
        assert refused[editions.index(7)] is None, editions
        for replica in replicas:
            assert await replica.newer(address, None) == answer(7), editions


async def test_what_nobody_signed_is_forgotten_first(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MOST", 3)
    newest = NewestCollateral(engine)
    await newest.offer("signed", answer(1), NOW)
    for number in range(5):
        await newest.offer(f"unsigned {number}", answer(number, signed=False), NOW)
    async with engine.connect() as connection:
        count = select(func.count()).select_from(COLLATERAL_ANSWERS)
        assert (await connection.execute(count)).scalar_one() == 3
    assert await newest.newer("signed", None) == answer(1)
    assert await newest.newer("unsigned 4", None) is not None


async def test_what_ended_is_forgotten_when_something_new_comes(engine: AsyncEngine) -> None:
    newest = NewestCollateral(engine)
    await newest.offer("ended", answer(1, age=timedelta(days=30)), NOW - timedelta(days=30))
    await newest.offer("new", answer(1), NOW)
    assert await newest.newer("ended", None) is None
    assert await newest.newer("new", None) == answer(1)
