"""From the first form of the ledger to the newest, on both databases, with data in it."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from cloister_api.ledger.database import (
    MIGRATIONS,
    LedgerError,
    Place,
    apply_migrations,
    engine_to_migrate,
    migrate,
    open_ledger,
    open_to_read,
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
from cloister_api.ledger.tables.core import METADATA
from cloister_api.usage.levels import EVER
from cloister_api.usage.queries import UsageQueries
from cloister_api.usage.retention import check
from cloister_api.usage.windows import WINDOWS
from tests.support.servers.postgres import Postgres

NOW = datetime(2026, 11, 22, 4, 30, 2, tzinfo=UTC)
FIRST = "0001"
"""The form that the first release wrote."""
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


async def test_a_ledger_of_the_first_release_is_brought_up_with_its_data(
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


BEFORE_LONG_SUMS = "0006"
OLD_SIZES = (5, 60, 900, 3600, 86400, EVER)
KEY = (
    "INSERT INTO api_keys (id, key_index, sealed, shown, name, organization, organization_id, "
    "created_by, created_at, metadata, disabled, change) VALUES (1, :index, '', 'tk_00000', 'ci', "
    "'acme', 'id-acme', 'ada', '2026-01-01 00:00:00+00:00', '{}', false, 1)"
)
EVENT = (
    "INSERT INTO usage_events (event_key, occurred_at, received_at, reporter, organization, key_id,"
    " operation, model, input_tokens, output_tokens, cached_input_tokens, requests, cost) "
    "VALUES (:key, :at, :at, 'r', 1, 1, 3, 2, 100, 10, 0, 1, 7)"
)


def write_as_before(engine: Engine, times: list[int]) -> None:
    """Write events of 100 and 10 tokens at times, with sums as the release before wrote them."""
    with engine.begin() as connection:
        connection.execute(text(KEY), {"index": b"x" * 32})
        for number, (kind, name) in enumerate(
            (("organization", "id-acme"), ("model", "north"), ("operation", "a/b")), start=1
        ):
            row = {"id": number, "kind": kind, "name": name}
            connection.execute(text("INSERT INTO usage_names VALUES (:id, :kind, :name)"), row)
        for at in times:
            row = {"key": at.to_bytes(16, "big"), "at": at * 1_000_000}
            connection.execute(text(EVENT), row)
        for size in OLD_SIZES:
            for bucket, count in Counter(at // size * size for at in times).items():
                sums = f"{100 * count}, {10 * count}, 0, {count}, {7 * count}"
                place = f"{size}, 1, {bucket}"
                for table, rest in (("usage_rollups", "1, 2"), ("usage_points", "2")):
                    connection.execute(
                        text(f"INSERT INTO {table} VALUES ({place}, {rest}, {sums})")
                    )
        count = len(times)
        sums = f"{100 * count}, {10 * count}, 0, {count}, {7 * count}"
        connection.execute(text(f"INSERT INTO key_totals VALUES (1, {sums}, 1)"))


async def test_sums_of_the_form_before_long_ones_are_brought_up(empty: Place) -> None:
    engine = engine_to_migrate(empty)
    upgrade(engine, BEFORE_LONG_SUMS)
    ages = (0, 3, 40, 1_000, 80_000, 90_000, 700_000, 1_400_000, 2_500_000, 6_000_000)
    write_as_before(engine, [int(NOW.timestamp()) - age for age in ages])
    migrate(empty)
    reading = open_to_read(empty)
    assert check(reading, NOW) == []
    with reading.connect() as connection:
        columns = "name, created_by, request"
        kept = connection.execute(text(f"SELECT {columns} FROM api_keys")).all()
    assert [tuple(row) for row in kept] == [("ci", "ada", None)]
    reading.dispose()
    with pytest.raises(DBAPIError), engine.begin() as old:
        old.execute(text("SELECT 1 FROM usage_rollups"))  # a facade of before writes nothing more
    engine.dispose()
    opened = open_ledger(empty)
    for window, count in ((None, 10), ("5m", 3), ("24h", 5), ("30d", 9), ("90d", 10)):
        found = await UsageQueries(opened).aggregated(
            "id-acme", WINDOWS[window] if window else None, NOW
        )
        assert (found.requests, found.tokens) == (count, 110 * count), window
    await opened.dispose()


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


@pytest.mark.parametrize("recorded", ["0011", NEWEST])
def test_what_was_recorded_before_is_taken_over(place: Place, recorded: str) -> None:
    """That of 0.1.0, and of a build between the releases."""
    if recorded == "0011":
        changed(place, "ALTER TABLE certificate_submissions DROP COLUMN namespace")
        changed(place, "DROP INDEX ix_api_keys_organization_id")
        changed(place, "CREATE INDEX uq_api_keys_live_name ON api_keys (organization_id)")
        changed(place, "DROP TABLE sessions")
        changed(place, "DROP TABLE session_links")
        changed(place, "ALTER TABLE audit DROP COLUMN session_id")
        changed(place, "DROP INDEX ix_audit_organization_id")
        changed(place, "ALTER TABLE audit DROP COLUMN organization_id")
    changed(place, f"DROP TABLE {VERSION.name}")
    changed(place, f"UPDATE {EARLIER_VERSION.name} SET version_num = '{recorded}'")
    migrate(place)
    test_the_release_before_finds_its_own_migration(place)
    test_migrations_make_what_the_tables_say(place)


def test_a_database_that_does_not_answer_is_named_without_its_password() -> None:
    url = URL.create("postgresql+psycopg", "me", "hidden-word", "127.0.0.1", 1, "books")
    with pytest.raises(LedgerError, match=r"ledger books at 127\.0\.0\.1") as caught:
        migrate(url)
    assert "hidden-word" not in str(caught.value)
