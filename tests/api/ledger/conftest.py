"""Fixtures of the ledger's tests: every test runs on SQLite and on PostgreSQL."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.database import Place, migrate, open_ledger
from cloister_api.ledger.keys.key_material import KeyMaterial
from tests.support.servers.postgres import Postgres, postgres


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    """Return a running PostgreSQL."""
    with postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return an empty ledger."""
    if request.param == "postgresql":
        running: Postgres = request.getfixturevalue("server")
        return running.ledger()
    path = tmp_path / "ledger.db"
    migrate(path)
    return path


@pytest.fixture
async def engine(place: Place) -> AsyncIterator[AsyncEngine]:
    """Return the ledger opened."""
    opened = open_ledger(place)
    yield opened
    await opened.dispose()


@pytest.fixture
async def second(place: Place) -> AsyncIterator[AsyncEngine]:
    """Return the same ledger opened once more, as by another replica."""
    opened = open_ledger(place)
    yield opened
    await opened.dispose()


@pytest.fixture
def material(tmp_path: Path) -> KeyMaterial:
    """Return key material."""
    return KeyMaterial.create(tmp_path / "keys.json")
