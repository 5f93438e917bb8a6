"""Backup and restore by the commands of the manual, beside a writer, on both databases."""

import asyncio
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import URL, func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.database import Place, migrate, open_ledger, open_to_read
from cloister_api.ledger.keys.api_keys import ApiKeys
from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.ledger.usage_tables import EVENTS
from cloister_api.usage.retention import check
from tests.support.builders.usage import delivery, key_in, some_events, written
from tests.support.servers.postgres import Postgres, binaries

NOW = datetime(2026, 11, 22, 4, 30, 2, tzinfo=UTC)
EACH = 50


def run(*command: str | Path) -> None:
    """Run a command."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def back_up(place: Place, copy: Path) -> None:
    """Back a ledger up as the manual says."""
    if isinstance(place, URL):
        os.mknod(copy)
        address = place.set(drivername="postgresql").render_as_string(hide_password=False)
        run(binaries() / "pg_dump", "--format=custom", f"--file={copy}", address)
    else:
        run("sqlite3", place, f".backup {copy}")


def restore(server: Postgres | None, copy: Path) -> Place:
    """Restore a ledger into an empty place as the manual says."""
    if server is None:
        return copy
    place = server.url(server.empty())
    address = place.set(drivername="postgresql").render_as_string(hide_password=False)
    run(binaries() / "pg_restore", "--exit-on-error", "--no-owner", f"--dbname={address}", copy)
    return place


async def events_in(engine: AsyncEngine) -> int:
    """Count events."""
    async with engine.connect() as connection:
        return int(
            (await connection.execute(select(func.count()).select_from(EVENTS))).scalar_one()
        )


async def test_a_backup_is_a_snapshot_of_the_ledger(
    engine: AsyncEngine, place: Place, material: KeyMaterial, server: Postgres, tmp_path: Path
) -> None:
    _, value = await key_in(engine, material, "ci", NOW)
    reports = [delivery(f"d{n}", some_events(n, EACH, [value], NOW), NOW) for n in range(30)]
    written(place, material, *reports[:10])
    begun = asyncio.Event()

    async def write_on() -> None:
        for one in reports[10:]:
            await asyncio.to_thread(written, place, material, one)
            begun.set()

    writing = asyncio.create_task(write_on())
    await begun.wait()
    copy = tmp_path / "copy"
    await asyncio.to_thread(back_up, place, copy)
    await writing
    assert await events_in(engine) == 30 * EACH

    restored = await asyncio.to_thread(restore, server if isinstance(place, URL) else None, copy)
    await asyncio.to_thread(migrate, restored)
    reading = open_to_read(restored)
    opened = open_ledger(restored)
    try:
        assert check(reading, NOW) == []
        kept = await events_in(opened)
        assert kept >= 11 * EACH
        assert kept % EACH == 0, "a report is in it as a whole or not at all"
        keys = ApiKeys(opened, material)
        assert list((await keys.values("id-acme", "ada")).values()) == [value]
        # Reporters send again what they have; what is in the backup counts once.
        outcomes = await asyncio.to_thread(written, restored, material, *reports)
        assert sum(one.accepted for one in outcomes) == 30 * EACH - kept
        assert await events_in(opened) == 30 * EACH
        assert check(reading, NOW) == []
    finally:
        reading.dispose()
        await opened.dispose()
