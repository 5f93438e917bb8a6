"""Metering at a real facade: killed at random, and with its database down."""

import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.database import open_ledger, place_of
from cloister_api.ledger.tables import RUNTIME_ENCLAVES, RUNTIME_SLICES
from cloister_api.settings import ApiSettings
from cloister_clients.clock import utc_now
from cloister_clients.kube import NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, Enclave
from cloister_crds.lifecycle.metering import FINALIZER
from dev.cluster import Cluster
from tests.support.programs.facade import DOMAIN, FacadeInstallation, run_command, start_facade
from tests.support.programs.operator import operator_lock
from tests.support.programs.published_settings import publish
from tests.support.servers.postgres import postgres
from tests.support.waiting import until, until_sync

PATIENCE = 90.0
KILLS = 5
METERED = "cloister-metered"
"""Namespace of an operator that meters."""


@pytest.fixture(scope="module", autouse=True)
def metered(api_cluster: Cluster) -> None:
    publish(api_cluster, DOMAIN, namespace=METERED, metering=True)


@pytest.fixture(autouse=True)
def alone(api_cluster: Cluster) -> Iterator[None]:
    """Let one test at a time meter: a facade that does meters every Enclave of the cluster."""
    with operator_lock(api_cluster.name):
        yield


def metering(world: FacadeInstallation, folder: Path, url: str | None = None) -> Path:
    """Write settings of a facade of its own that meters."""
    settings = yaml.safe_load(world.settings.read_text())
    ledger: dict[str, Any] = {"keyMaterial": str(world.settings.parent / "keys.json")}
    if url is None:
        ledger["path"] = str(folder / "ledger.db")
    else:
        (folder / "url").touch(mode=0o600)
        (folder / "url").write_text(url)
        ledger["urlFile"] = str(folder / "url")
    settings |= {"ledger": ledger, "operatorNamespace": METERED}
    del settings["webhooks"]
    path = folder / "api.yml"
    path.write_text(yaml.safe_dump(settings))
    return path


@contextlib.asynccontextmanager
async def opened(settings: Path) -> AsyncIterator[AsyncEngine]:
    """Open the ledger of settings."""
    engine = open_ledger(place_of(ApiSettings.read(settings).ledger))
    try:
        yield engine
    finally:
        await engine.dispose()


async def slices(settings: Path, uid: str) -> tuple[int, int]:
    """Return how many slices an enclave has, and their sum in microseconds."""
    one = RUNTIME_SLICES.c
    query = select(func.count(), func.sum(one.microseconds)).where(one.enclave == uid)
    async with opened(settings) as engine, engine.connect() as connection:
        count, total = (await connection.execute(query)).one()
    return count, int(total or 0)


def at(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


async def enclave(world: FacadeInstallation, name: str, promoted: datetime | None) -> str:
    """Create an Enclave that serves since a time, and return its uid."""
    if await world.container("web") is None:
        spec = {"name": "web", "repo": world.repo, "tag": "v1.0.0", "commit": "0" * 40}
        manifest = {"metadata": {"name": "web", "namespace": world.namespace}, "spec": spec}
        await world.kube.create(of(Container), manifest)
    await world.enclave("web", name=name, finalizers=[FINALIZER])
    if promoted is not None:
        await world.report_enclave(name, promotedAt=at(promoted))
    return str((await world.kube.get(of(Enclave), name, world.namespace))["metadata"]["uid"])


def wait_until(moment: float) -> None:
    """Let a process work until a moment of the monotonic clock."""
    until_sync(lambda: time.monotonic() >= moment, within=10, every=0.05, what="the moment")


async def gone(world: FacadeInstallation, name: str) -> bool:
    try:
        await world.kube.get(of(Enclave), name, world.namespace)
    except NotFound:
        return True
    return False


async def over(world: FacadeInstallation, name: str, demoted: datetime | None) -> None:
    """End an Enclave as the operator does."""
    if demoted is not None:
        await world.report_enclave(name, demotedAt=at(demoted))
    await world.kube.delete(of(Enclave), name, world.namespace)


@pytest.mark.spec("5.2")
async def test_blue_green_and_kills_at_random_times_lose_and_double_nothing(
    world: FacadeInstallation, tmp_path: Path
) -> None:
    settings = metering(world, tmp_path)
    start = utc_now().replace(microsecond=0) - timedelta(minutes=47, seconds=13)
    switch = start + timedelta(minutes=21, seconds=7)
    one, two = await enclave(world, "web-a-1", start), await enclave(world, "web-b-1", switch)
    await enclave(world, "web-c-1", None)
    chosen = random.Random(7)
    for kill in range(KILLS):
        with start_facade(settings) as facade:
            wait_until(time.monotonic() + chosen.random() * 1.5)
            if kill == 2:
                await over(world, "web-a-1", switch)
            facade.kill()
    end = switch + timedelta(minutes=19, seconds=2)
    await over(world, "web-c-1", None)
    with start_facade(settings):
        await until(lambda: gone(world, "web-a-1"), within=PATIENCE, what="the end of the first")
        await until(lambda: gone(world, "web-c-1"), within=PATIENCE, what="the end of no service")
        assert not await gone(world, "web-b-1")
        await over(world, "web-b-1", end)
        await until(lambda: gone(world, "web-b-1"), within=PATIENCE, what="the end of the second")
    assert (await slices(settings, one))[1] == (switch - start) / timedelta(microseconds=1)
    assert (await slices(settings, two))[1] == (end - switch) / timedelta(microseconds=1)
    days = ("--since", f"{start:%Y-%m-%d}", "--until", f"{end + timedelta(days=1):%Y-%m-%d}")
    whose = ("--organization", world.organization, *days, "--config", str(settings))
    (line,) = run_command("ledger", "runtime", *whose).stdout.splitlines()
    told = json.loads(line)
    assert (told["name"], told["cpus"], told["memory_mb"]) == ("web", 2, 8192)
    assert told["seconds"] == (end - start).total_seconds()
    assert "sums are" in run_command("ledger", "check", "--config", str(settings)).stdout


async def test_a_ledger_that_was_down_loses_nothing(
    world: FacadeInstallation, tmp_path: Path
) -> None:
    """Beside it somebody tries to stop the metering of all with an identifier that has no room."""
    with postgres() as server:
        url = server.ledger().render_as_string(hide_password=False)
        settings = metering(world, tmp_path, url.replace("+psycopg", ""))
        start = utc_now().replace(microsecond=0) - timedelta(minutes=16)
        uid = await enclave(world, "web-a-1", start)
        other = await enclave(world, "web-b-1", start)
        claimed = {"metadata": {"annotations": {"cloister.dev/id": "x" * 300}}}
        await world.kube.merge_patch(of(Container), "web", claimed, world.namespace)
        with start_facade(settings) as facade:

            async def metered() -> bool:
                return (await slices(settings, uid))[0] >= 3

            await until(metered, within=PATIENCE, what="the slices that are over")
            server.stop()
            end = start + timedelta(minutes=15, seconds=59)
            await over(world, "web-a-1", end)

            def told() -> bool:
                words = facade.log.read_text()
                return "the ledger is away" in words or facade.process.poll() is not None

            until_sync(told, within=PATIENCE, what="the facade to notice")
            assert not await gone(world, "web-a-1"), "it waits for the ledger"
            server.start()
        with start_facade(settings):
            await until(lambda: gone(world, "web-a-1"), within=PATIENCE, what="the end")
        assert (await slices(settings, uid))[1] == (end - start) / timedelta(microseconds=1)
        assert (await slices(settings, other))[0] >= 3
    await world.end_enclave("web-b-1")


async def test_an_enclave_from_before_is_left_alone(
    world: FacadeInstallation, tmp_path: Path
) -> None:
    settings = metering(world, tmp_path)
    start = utc_now().replace(microsecond=0) - timedelta(minutes=16)
    await enclave(world, "web-a-1", start)
    await world.enclave("web", name="web-b-1", finalizers=["tests.cloister.dev/other"])
    await world.report_enclave("web-b-1", promotedAt=at(start))
    with start_facade(settings):

        async def names() -> int:
            query = select(func.count()).select_from(RUNTIME_ENCLAVES)
            async with opened(settings) as engine, engine.connect() as connection:
                return int((await connection.execute(query)).scalar_one())

        await until(names, within=PATIENCE, what="the metered one")
        assert await names() == 1
    await world.end_enclave("web-a-1")
    await world.end_enclave("web-b-1")
