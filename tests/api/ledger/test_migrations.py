"""From the ledger of the release before to the newest, on both databases, with data in it."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Engine, create_engine, text

from cloister_api.ledger.database import (
    MIGRATIONS,
    LedgerError,
    Place,
    apply_migrations,
    engine_to_migrate,
    migrate,
    open_ledger,
)
from cloister_api.ledger.keys.admin_keys import AdminKeys
from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.ledger.migrations.recorded import (
    EARLIER_VERSION,
    NEWEST,
    OLDEST,
    VERSION,
    version_of,
)
from cloister_api.ledger.tables import METADATA
from tests.support.servers.postgres import Postgres

NOW = datetime(2026, 11, 22, 4, 30, 2, tzinfo=UTC)
FIRST = "0011"
"""The form that release 0.2.0 wrote."""
ADMIN_KEY = (
    "INSERT INTO admin_keys (id, key_index, sealed, last_four, name, organization, "
    "organization_id, created_by, created_at) VALUES "
    "('k1', :index, 'v1.x.y', 'abcd', 'ci', 'acme', 'id-1', 'ada', '2026-01-01 00:00:00+00:00')"
)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return a place without a ledger."""
    if request.param == "postgresql":
        running: Postgres = request.getfixturevalue("server")
        return running.url(running.empty())
    return tmp_path / "ledger.db"


def upgrade(engine: Engine, revision: str) -> None:
    """Bring a ledger to a certain form."""
    with engine.begin() as connection:
        apply_migrations(connection, "the ledger", revision)


def test_the_newest_form_is_the_one_of_the_last_migration() -> None:
    """A ledger of that form is not migrated; another number here would skip the last migration."""
    assert ScriptDirectory(MIGRATIONS).get_heads() == [NEWEST]


async def test_a_ledger_of_the_release_before_is_brought_up_with_its_data(
    empty: Place, tmp_path: Path
) -> None:
    engine = engine_to_migrate(empty)
    upgrade(engine, FIRST)
    material = KeyMaterial.create(tmp_path / "keys.json")
    with engine.begin() as connection:
        connection.execute(text(ADMIN_KEY), {"index": material.index("x")})
    engine.dispose()
    await asyncio.gather(*(asyncio.to_thread(migrate, empty) for _ in range(3)))
    opened = open_ledger(empty)
    (key,) = await AdminKeys(opened, material).all()
    await opened.dispose()
    assert (key.id, key.name, key.index) == ("k1", "ci", material.index("x"))


def test_migrations_make_what_the_tables_say(place: Place) -> None:
    url = place if isinstance(place, URL) else f"sqlite:///{place}"
    engine = create_engine(url)
    with engine.connect() as connection:
        options = {"version_table": VERSION.name}
        context = MigrationContext.configure(connection, opts=options)
        differences = compare_metadata(context, METADATA)
    engine.dispose()
    others = [each for each in differences if getattr(each[1], "name", "") != EARLIER_VERSION.name]
    assert others == []


def changed(place: Place, statement: str) -> None:
    """Change a ledger by hand."""
    engine = engine_to_migrate(place)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_a_ledger_of_a_newer_release_is_refused(place: Place) -> None:
    changed(place, f"UPDATE {VERSION.name} SET version_num = '9999', oldest = '9000'")
    with pytest.raises(LedgerError, match="newer release"):
        migrate(place)


def test_a_ledger_of_a_newer_release_that_this_one_can_use_is_used(place: Place) -> None:
    changed(place, f"UPDATE {VERSION.name} SET version_num = '9999', oldest = '{NEWEST}'")
    migrate(place)
    engine = engine_to_migrate(place)
    with engine.begin() as connection:
        assert version_of(connection) == "9999", "and left as it is"
    engine.dispose()


def test_the_release_before_finds_its_own_migration(place: Place) -> None:
    """It refuses any other; after a rollback it uses the ledger as this release has left it."""
    engine = engine_to_migrate(place)
    with engine.begin() as connection:
        found = connection.execute(text(f"SELECT version_num FROM {EARLIER_VERSION.name}"))
        assert found.scalars().all() == [OLDEST]
        row = connection.execute(text(f"SELECT version_num, oldest FROM {VERSION.name}")).one()
        assert tuple(row) == (NEWEST, OLDEST)
    engine.dispose()


def test_what_0_2_0_recorded_is_taken_over(empty: Place) -> None:
    engine = engine_to_migrate(empty)
    upgrade(engine, FIRST)
    engine.dispose()
    changed(empty, f"DROP TABLE {VERSION.name}")
    migrate(empty)
    test_the_release_before_finds_its_own_migration(empty)
    test_migrations_make_what_the_tables_say(empty)


def test_a_database_that_does_not_answer_is_named_without_its_password() -> None:
    url = URL.create("postgresql+psycopg", "me", "hidden-word", "127.0.0.1", 1, "books")
    with pytest.raises(LedgerError, match=r"ledger books at 127\.0\.0\.1") as caught:
        migrate(url)
    assert "hidden-word" not in str(caught.value)
