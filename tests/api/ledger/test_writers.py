"""Many writers of an SQLite file: none of them stops the event loop, or is refused."""

import asyncio
import gc
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger import database
from cloister_api.ledger.database import migrate, open_ledger
from cloister_api.ledger.keys.api_keys import ApiKeys
from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.ledger.leases import Replicas, advance
from cloister_api.ledger.tables import SEQUENCES
from tests.support.waiting import until

NOW = datetime(2026, 11, 27, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return an empty ledger in a file."""
    migrate(tmp_path / "ledger.db")
    return tmp_path / "ledger.db"


@pytest.fixture
async def file(path: Path) -> AsyncIterator[AsyncEngine]:
    """Return that ledger opened."""
    opened = open_ledger(path)
    yield opened
    await opened.dispose()


@pytest.fixture
def eager_collector() -> Iterator[None]:
    """Make the garbage collector run after nearly every allocation."""
    before = gc.get_threshold()
    gc.set_threshold(50, 1, 1)
    yield
    gc.set_threshold(*before)


async def create(keys: ApiKeys, name: str) -> int:
    """Create a key unless another attempt did, and return its number."""
    key, _ = await keys.create(
        organization="acme", organization_id="u", user="ada", name=name, now=NOW, request=name
    )
    return key.id


async def is_refused(engine: AsyncEngine) -> bool:
    """Write what a constraint refuses, and return whether it did."""
    try:
        async with engine.begin() as connection:
            await advance(connection, "api_keys")
            await connection.execute(insert(SEQUENCES).values(name="api_keys", value=0))
    except IntegrityError:
        return True
    return False


@pytest.mark.usefixtures("eager_collector")
async def test_what_failed_statements_leave_behind_stops_no_writer(
    file: AsyncEngine, material: KeyMaterial
) -> None:
    keys = ApiKeys(file, material)
    async with asyncio.timeout(20):
        for number in range(10):
            refused = (is_refused(file) for _ in range(5))
            made, *others = await asyncio.gather(create(keys, f"name-{number}"), *refused)
            assert made
            assert others == [True] * 5


async def test_writers_of_two_processes_all_get_their_turn(
    path: Path, file: AsyncEngine, material: KeyMaterial
) -> None:
    other = open_ledger(path)
    sides = [ApiKeys(each, material) for each in (file, other)]
    async with asyncio.timeout(60):
        made = await asyncio.gather(
            *(create(side, f"name-{number}") for number in range(50) for side in sides)
        )
    await other.dispose()
    assert len(made) == 100
    assert len(set(made)) == 50


async def test_a_writer_waits_for_a_lock_outside_of_the_loop(path: Path, file: AsyncEngine) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(Replicas(file, "one").beat(NOW))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not writing.done()
        assert await ApiKeys(file, KeyMaterial.create(path.parent / "k")).of_organization("u") == []
        holder.execute("COMMIT")

        async def written() -> bool:
            return writing.done()

        await until(written, what="the write after the lock's end")
        assert await writing == 1


async def test_a_lock_that_never_ends_is_an_error(
    path: Path, file: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.2)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError, match="database is locked"):
            await Replicas(file, "one").beat(NOW)
    assert await Replicas(file, "one").beat(NOW) == 1


async def test_a_cancelled_writer_gives_its_turn_back(path: Path, file: AsyncEngine) -> None:
    begun = asyncio.Event()

    async def abandoned() -> None:
        async with file.begin() as connection:
            await connection.exec_driver_sql("DELETE FROM replicas")
            begun.set()
            await asyncio.Event().wait()

    async with asyncio.timeout(20):
        assert await Replicas(file, "one").beat(NOW) == 1
        within = asyncio.create_task(abandoned())
        await begun.wait()
        with closing(sqlite3.connect(path, isolation_level=None)) as holder:
            queued = [
                asyncio.create_task(Replicas(file, name).beat(NOW)) for name in ("two", "three")
            ]
            await asyncio.sleep(0)
            queued[1].cancel()  # it waits for its turn
            within.cancel()
            await asyncio.wait([within, queued[1]])
            assert await queued[0] == 2
            holder.execute("BEGIN IMMEDIATE")
            stuck = asyncio.create_task(Replicas(file, "four").beat(NOW))
            for _ in range(50):
                await asyncio.sleep(0)
            stuck.cancel()  # it has its turn, and waits for the other process
            await asyncio.wait([stuck])
            holder.execute("COMMIT")
        assert await Replicas(file, "five").beat(NOW) == 3


async def test_another_error_is_not_waited_for(tmp_path: Path) -> None:
    broken = open_ledger(tmp_path)
    async with asyncio.timeout(5):
        with pytest.raises(OperationalError, match="unable to open database file"):
            await Replicas(broken, "one").beat(NOW)
    await broken.dispose()
