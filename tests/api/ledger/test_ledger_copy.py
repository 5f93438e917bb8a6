"""``cloister ledger backup`` and ``restore``: a copy between all databases, proven by sums."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.backup.collection import back_up, check_material, restore
from cloister_api.ledger.database import LedgerError, Place, open_ledger, open_to_read
from cloister_api.ledger.keys.api_keys import ApiKeys
from cloister_api.ledger.keys.key_material import KeyMaterial, MaterialError
from cloister_api.ledger.tables import REPLICAS
from cloister_api.usage.retention import check
from tests.support.builders.usage import delivery, key_in, some_events, written
from tests.support.servers.postgres import Postgres

NOW = datetime(2026, 11, 22, 4, 30, 2, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return where nothing is yet."""
    if request.param == "postgresql":
        running: Postgres = request.getfixturevalue("server")
        return running.url(running.empty())
    return tmp_path / "target" / "ledger.db"


async def test_a_ledger_is_restored_into_any_database(
    engine: AsyncEngine, place: Place, target: Place, material: KeyMaterial, tmp_path: Path
) -> None:
    _, value = await key_in(engine, material, "ci", NOW)
    reports = [delivery(f"d{n}", some_events(n, 50, [value], NOW), NOW) for n in range(2)]
    written(place, material, *reports)
    async with engine.begin() as connection:
        await connection.execute(insert(REPLICAS).values(id="me", seen_at=NOW))
    file = tmp_path / "backup.db"
    sums = back_up(place, file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert not file.with_name("backup.db-wal").exists(), "one file is all of it"
    assert sums["usage_events"].startswith("100 ")
    assert restore(file, target, material) == sums
    check_material(target, material)
    reading, opened = open_to_read(target), open_ledger(target)
    try:
        assert check(reading, NOW) == []
        keys = ApiKeys(opened, material)
        assert list((await keys.values("id-acme", "ada")).values()) == [value]
        # Numbers of rows go on after those that were copied, in every database.
        _, other = await key_in(opened, material, "later", NOW)
        late = delivery("late", some_events(9, 50, [value, other], NOW), NOW)
        assert written(target, material, late)[0].accepted == 50
        assert check(reading, NOW) == []
    finally:
        reading.dispose()
        await opened.dispose()
    # Restored before, and used since: it stays as it is.
    assert restore(file, target, material) is None


async def test_a_ledger_in_use_is_not_overwritten(
    engine: AsyncEngine, place: Place, material: KeyMaterial, tmp_path: Path
) -> None:
    file, empty = tmp_path / "backup.db", tmp_path / "empty.db"
    back_up(place, empty)
    _, value = await key_in(engine, material, "ci", NOW)
    back_up(place, file)
    with pytest.raises(LedgerError, match="is in use"):
        restore(empty, place, material)
    assert list((await ApiKeys(engine, material).values("id-acme", "ada")).values()) == [value]
    other = KeyMaterial.create(tmp_path / "other.json")
    with pytest.raises(MaterialError, match="does not open with this key material"):
        restore(file, tmp_path / "ledger-of-others.db", other)


def test_what_is_no_backup_is_refused(tmp_path: Path, material: KeyMaterial) -> None:
    file, target = tmp_path / "file", tmp_path / "ledger.db"
    with pytest.raises(LedgerError, match="No such file"):
        restore(file, target, material)
    file.write_text("no ledger")
    with pytest.raises(LedgerError, match="is not a backup of a ledger"):
        restore(file, target, material)
    assert not target.exists()
