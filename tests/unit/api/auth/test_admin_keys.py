"""The form of admin keys, their key material, and the ledger on a real SQLite file."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.auth.admin_keys import AdminKeyCache
from cloister_api.auth.token_bucket import UnknownKeyLimit
from cloister_api.ledger.audit import AuditRow, AuditTrail
from cloister_api.ledger.database import LedgerError, migrate, open_ledger
from cloister_api.ledger.keys.admin_keys import AdminKey, AdminKeys
from cloister_api.ledger.keys.key_material import (
    KeyMaterial,
    MaterialError,
    generate,
    masked,
    well_formed,
)
from cloister_api.ledger.migrations.recorded import EARLIER_VERSION, VERSION
from cloister_api.ledger.tables import METADATA

NOW = datetime(2026, 11, 22, 4, 30, tzinfo=UTC)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    migrate(tmp_path / "ledger.db")
    opened = open_ledger(tmp_path / "ledger.db")
    yield opened
    await opened.dispose()


@pytest.fixture
def material(tmp_path: Path) -> KeyMaterial:
    return KeyMaterial.create(tmp_path / "keys.json")


@pytest.fixture
def keys(engine: AsyncEngine, material: KeyMaterial) -> AdminKeys:
    return AdminKeys(engine, material)


async def make(keys: AdminKeys, organization: str = "acme") -> tuple[AdminKey, str]:
    return await keys.create(
        organization=organization, organization_id="id-1", user="ada", name="ci", now=NOW
    )


def written(folder: Path) -> bytes:
    """Return everything that the ledger has written."""
    return b"".join(file.read_bytes() for file in sorted(folder.glob("ledger.db*")))


@pytest.mark.spec("2.2", "25.2")
def test_keys_have_the_form_that_clients_know() -> None:
    key = generate()
    assert key.startswith("admin_")
    assert len(key) == 6 + 30 + 6
    assert well_formed(key)
    assert generate() != key
    assert masked(key) == key[:8] + "*" * 24


@given(st.integers(0, 41), st.characters())
def test_a_key_with_one_wrong_character_is_recognised(place: int, character: str) -> None:
    key = "admin_0123456789ABCDEFGHIJKLMNOPQRST"
    valid = key + "3vLFhd" if well_formed(key + "3vLFhd") else generate()
    changed = valid[:place] + character + valid[place + 1 :]
    assert well_formed(changed) is (changed == valid)


@pytest.mark.parametrize("text", ["", "admin_", "tk_" + "a" * 39, "admin_" + "a" * 36, "é" * 42])
def test_a_malformed_key_is_recognised(text: str) -> None:
    assert not well_formed(text)


def test_key_material_is_private_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "keys.json"
    made = KeyMaterial.create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert KeyMaterial.read(path) == made
    assert "keys" not in repr(made)
    assert made.index("a") != KeyMaterial.create(tmp_path / "other.json").index("a")
    with pytest.raises(MaterialError, match="exists; delete it yourself"):
        KeyMaterial.create(path)
    path.chmod(0o640)
    with pytest.raises(MaterialError, match="chmod 600"):
        KeyMaterial.read(path)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"index": "x", "sealing": "y"}', '{"index": "YQ==", "sealing": "YQ=="}'],
)
def test_broken_key_material_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(MaterialError):
        KeyMaterial.read(path)


def test_missing_key_material_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(MaterialError, match="cloister admin-key init"):
        KeyMaterial.read(tmp_path / "none")


def test_sealed_values_open_in_their_context_alone(tmp_path: Path, material: KeyMaterial) -> None:
    sealed = material.seal("secret", context="a|1")
    assert "secret" not in sealed
    assert material.unseal(sealed, context="a|1") == "secret"
    assert material.seal("secret", context="a|1") != sealed
    other = KeyMaterial.create(tmp_path / "other.json")
    spoilt = sealed[:-6] + "AAAAAA"
    for one, text, context in (
        (material, sealed, "a|2"),
        (other, sealed, "a|1"),
        (material, spoilt, "a|1"),
        (material, sealed.replace("v1", "v2", 1), "a|1"),
        (material, "v1.x", "a|1"),
    ):
        with pytest.raises(MaterialError):
            one.unseal(text, context=context)


async def test_a_key_is_found_and_read_again_but_not_stored(
    keys: AdminKeys, material: KeyMaterial, tmp_path: Path
) -> None:
    key, value = await make(keys)
    assert key.index == material.index(value)
    assert key.last_four == value[-4:]
    assert key.created_at == NOW
    assert await keys.all("acme") == [key]
    assert await keys.all("other") == []
    assert await keys.value(key.id) == value
    assert await keys.value("none") is None
    assert value.encode() not in written(tmp_path)
    assert value not in repr(key)
    assert repr(key.index) not in repr(key)


async def test_a_sealed_value_does_not_open_in_another_row(
    keys: AdminKeys, engine: AsyncEngine
) -> None:
    one, _ = await make(keys)
    two, _ = await make(keys)
    async with engine.begin() as connection:
        await connection.exec_driver_sql(
            "UPDATE admin_keys SET sealed = (SELECT sealed FROM admin_keys WHERE id = ?) "
            "WHERE id = ?",
            (one.id, two.id),
        )
    with pytest.raises(MaterialError):
        await keys.value(two.id)


@pytest.mark.spec("25.8")
async def test_a_key_is_revoked_once_and_for_good(keys: AdminKeys) -> None:
    key, _ = await make(keys)
    before = await keys.change_count()
    assert await keys.revoke(key.id, because="demoted", now=NOW)
    assert await keys.change_count() > before
    later = NOW + timedelta(days=1)
    assert not await keys.revoke(key.id, because="again", now=later)
    assert not await keys.revoke("none", because="x", now=NOW)
    (found,) = await keys.all()
    assert (found.revoked_at, found.revoked_because) == (NOW, "demoted")


async def test_the_ring_follows_changes_by_others(keys: AdminKeys, material: KeyMaterial) -> None:
    cache = AdminKeyCache(keys, material, UnknownKeyLimit(1000))
    await cache.refresh()
    key, value = await make(keys)
    assert await cache.find(cache.index(value)) == key
    assert await cache.find(b"no such index") is None
    await cache.revoke(key, because="demoted", now=NOW)
    again = await cache.find(cache.index(value))
    assert again is not None
    assert again.revoked_at == NOW
    cache.note_use(key, NOW)
    await cache.write_uses()
    assert (await keys.all())[0].last_used_at == NOW


async def test_times_without_zone_do_not_reach_the_ledger(keys: AdminKeys) -> None:
    key, _ = await make(keys)
    with pytest.raises(Exception, match="without zone"):
        await keys.used({key.id: datetime(2026, 1, 1)})  # noqa: DTZ001 - what is refused


async def test_the_audit_trail_is_added_to(engine: AsyncEngine) -> None:
    trail = AuditTrail(engine)
    row = AuditRow(NOW, "r1", "acme", "ada", None, "container.create", "id-1", "201")
    await trail.add(row)
    assert await trail.of("acme") == [row]
    assert await trail.of("other") == []
    assert await trail.contains(action="container.create", target="id-1", result="201")
    assert not await trail.contains(action="container.create", target="id-1", result="409")


def test_migrations_make_what_the_tables_say(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    migrate(path)
    migrate(path)
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION.name})
        differences = compare_metadata(context, METADATA)
    engine.dispose()
    assert [each for each in differences if each[1].name != EARLIER_VERSION.name] == []
    assert path.stat().st_mode & 0o777 == 0o600


async def test_many_may_migrate_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await asyncio.gather(*(asyncio.to_thread(migrate, path) for _ in range(4)))
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("SELECT count(*) FROM key_changes").fetchone() == (1,)
    connection.close()


def test_a_ledger_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    migrate(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE ledger_version SET version_num = '9999', oldest = '9999'")
    connection.commit()
    connection.close()
    with pytest.raises(LedgerError, match="newer release"):
        migrate(path)


def test_a_ledger_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.mkdir()
    with pytest.raises(LedgerError, match=r"ledger\.db"):
        migrate(path)


def test_key_material_is_json_of_two_keys(tmp_path: Path) -> None:
    KeyMaterial.create(tmp_path / "keys.json")
    assert set(json.loads((tmp_path / "keys.json").read_text())) == {"index", "sealing"}
