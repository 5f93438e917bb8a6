"""An older answer of a maker replaces no newer one, at no replica: through HTTP, with a ledger."""

import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from cloister_api.collateral.metrics import CollateralMetrics
from tests.support.programs.collateral_world import (
    DATED_ADDRESSES,
    LISTED,
    TCB,
    CollateralWorld,
    collateral_world,
)
from tests.support.programs.maker_services import maker_services

DAY = timedelta(days=1)
FOREIGN_CLASS = "00906ea10000"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[CollateralWorld]:
    async with collateral_world(tmp_path / "ledger.db") as made:
        yield made


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged of collateral."""
    return [each.message for each in caplog.records if each.levelno == logging.WARNING]


@pytest.mark.parametrize("address", DATED_ADDRESSES)
async def test_an_older_answer_that_is_valid_replaces_no_newer_one(
    world: CollateralWorld, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = await world.cache.get(address)
    world.now += 2 * DAY
    world.makers.now -= timedelta(seconds=1)
    for _ in range(3):
        assert await world.cache.get(address) is first
        world.now += timedelta(minutes=1)
    assert len(world.makers.requests) == 4, "asked again after a minute"
    (said,) = warnings_of(caplog)
    assert "it is older (number" in said
    assert "is stale" in said
    (family,) = CollateralMetrics(world.cache).collect()
    found = {tuple(each.labels.values()): each.value for each in family.samples}
    maker = address.split("/")[2]
    assert found == {(maker, "taken"): 1, (maker, "older"): 3}
    world.makers.now = world.now
    assert (await world.cache.get(address)).fetched_at == world.now
    assert len(warnings_of(caplog)) == 1


async def test_a_later_answer_by_an_earlier_evaluation_is_older(world: CollateralWorld) -> None:
    first = await world.cache.get(TCB)
    world.now += 2 * DAY
    world.makers.now, world.makers.evaluation = world.now, 14
    assert await world.cache.get(TCB) is first
    world.now += timedelta(minutes=1)
    world.makers.now, world.makers.evaluation = first.fetched_at - DAY, 16
    assert await world.cache.get(TCB) is not first


async def test_of_two_lists_of_one_time_the_greater_number_is_newer(
    world: CollateralWorld,
) -> None:
    world.makers.list_number = 2**159
    first = await world.cache.get(LISTED)
    world.now += 2 * DAY
    world.makers.list_number = 2**159 - 1
    assert await world.cache.get(LISTED) is first
    world.now += timedelta(minutes=1)
    world.makers.list_number = 2**159 + 1
    assert await world.cache.get(LISTED) is not first


@pytest.mark.parametrize("address", DATED_ADDRESSES)
async def test_what_somebody_else_signed_replaces_nothing_whatever_its_date(
    world: CollateralWorld, address: str
) -> None:
    first = await world.cache.get(address)
    assert world.cache.counts.total() == 1
    assert next(iter(world.cache.counts))[1] == "taken"
    world.now += 2 * DAY
    world.makers.now, world.makers.forged = world.now, True
    world.makers.evaluation = world.makers.list_number = 10**6
    assert await world.cache.get(address) is first


@pytest.mark.parametrize("address", DATED_ADDRESSES)
async def test_what_the_maker_signed_replaces_a_forgery_of_any_date(
    world: CollateralWorld, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.makers.forged = True
    world.makers.evaluation = world.makers.list_number = 10**6
    forged = await world.cache.get(address)
    assert "not signed by a root of the maker's" in warnings_of(caplog)[0]
    world.now += timedelta(hours=1)
    world.makers.forged = False
    world.makers.evaluation = world.makers.list_number = 1
    world.makers.now -= DAY
    genuine = await world.cache.get(address)
    assert genuine.body != forged.body
    assert genuine.fetched_at == world.now


async def test_levels_of_another_class_of_processors_are_not_newer(world: CollateralWorld) -> None:
    first = await world.cache.get(TCB)
    world.now += 2 * DAY
    world.makers.now, world.makers.about = world.now, FOREIGN_CLASS
    assert await world.cache.get(TCB) is first


async def test_an_answer_of_the_future_is_not_taken(world: CollateralWorld) -> None:
    world.makers.now = world.now + timedelta(minutes=11)
    assert "it is of the future" in str(await world.refusal(LISTED))


async def test_what_is_no_longer_valid_gives_way_to_an_older_answer(
    world: CollateralWorld,
) -> None:
    world.makers.life = DAY
    first = await world.cache.get(LISTED)
    world.now += DAY
    world.makers.now, world.makers.life = world.makers.now - DAY, 30 * DAY
    second = await world.cache.get(LISTED)
    assert second.edition < first.edition
    world.makers.status = 503
    async with world.replica() as other:
        assert await other.get(LISTED) == second


async def test_the_newer_one_of_two_replicas_is_given_by_both(world: CollateralWorld) -> None:
    with maker_services() as stale:
        stale.now = world.makers.now - DAY
        async with world.replica(world.settings_for(stale)) as other:
            old = await other.get(TCB)
            new = await world.cache.get(TCB)
            assert new.edition > old.edition, "each asks for itself"
            assert await other.get(TCB) == new
            assert len(stale.requests) == 1
            world.now += 2 * DAY
            assert await other.get(TCB) == new
            assert other.counts["api.trustedservices.intel.com", "older"] == 1
        async with world.replica(world.settings_for(stale)) as restarted:
            assert await restarted.get(TCB) == new


async def test_without_the_ledger_memory_goes_on(
    world: CollateralWorld, caplog: pytest.LogCaptureFixture
) -> None:
    first = await world.cache.get(TCB)
    async with world.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE collateral_answers RENAME TO away"))
    assert await world.cache.get(TCB) is first
    assert await world.cache.get(TCB) is first
    (said,) = warnings_of(caplog)
    assert "the ledger does not respond (OperationalError)" in said
    world.now += 2 * DAY
    world.makers.now -= DAY
    assert await world.cache.get(TCB) is first, "nor is an older one taken"
    world.now += timedelta(minutes=1)
    world.makers.now = world.now
    second = await world.cache.get(TCB)
    assert second.fetched_at == world.now
    async with world.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE away RENAME TO collateral_answers"))
    assert await world.cache.get(TCB) is second, "what the ledger has is older"
