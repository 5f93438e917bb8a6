"""From the first form of the ledger to the newest, on both databases, with data in it."""

import asyncio
from pathlib import Path

import alembic.command
import alembic.config
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import URL, Engine, create_engine, text

from cloister_api.ledger.database import (
    MIGRATIONS,
    LedgerError,
    Place,
    engine_to_migrate,
    migrate,
    open_ledger,
)
from cloister_api.ledger.keys import AdminKeys
from cloister_api.ledger.material import Material
from cloister_api.ledger.tables import METADATA
from tests.support.postgres import Postgres

FIRST = "0001"
"""The form that the first release wrote."""
ADMIN_KEY = (
    "INSERT INTO admin_keys (id, key_index, sealed, last_four, name, organization, "
    "organization_id, created_by, created_at) VALUES "
    "('k1', :index, 'v1.x.y', 'abcd', 'ci', 'acme', 'id-1', 'ada', '2026-01-01 00:00:00+00:00')"
)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Give a place without a ledger."""
    if request.param == "postgresql":
        running: Postgres = request.getfixturevalue("server")
        return running.url(running.empty())
    return tmp_path / "ledger.db"


def upgrade(engine: Engine, revision: str) -> None:
    """Bring a ledger to a certain form."""
    config = alembic.config.Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        alembic.command.upgrade(config, revision)


async def test_a_ledger_of_the_first_release_is_brought_up_with_its_data(
    empty: Place, tmp_path: Path
) -> None:
    engine = engine_to_migrate(empty)
    upgrade(engine, FIRST)
    material = Material.create(tmp_path / "keys.json")
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
        differences = compare_metadata(MigrationContext.configure(connection), METADATA)
    engine.dispose()
    assert differences == []


def test_a_ledger_of_a_newer_release_is_refused(place: Place) -> None:
    engine = engine_to_migrate(place)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(LedgerError, match="newer release"):
        migrate(place)


def test_a_database_that_does_not_answer_is_named_without_its_password() -> None:
    url = URL.create("postgresql+psycopg", "me", "hidden-word", "127.0.0.1", 1, "books")
    with pytest.raises(LedgerError, match=r"ledger books at 127\.0\.0\.1") as caught:
        migrate(url)
    assert "hidden-word" not in str(caught.value)
