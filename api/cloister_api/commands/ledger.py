"""``cloister ledger`` and ``cloister prices``: maintenance of the ledger, price lists."""

import asyncio
import dataclasses
import json
import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click
import yaml
from sqlalchemy import Engine

from cloister_api.backup import collection
from cloister_api.commands.options import (
    config_option,
    finish,
    migrated_ledger,
    new_file,
    settings_of,
)
from cloister_api.ledger.database import migrate, open_to_read, place_of
from cloister_api.ledger.keys import rotation
from cloister_api.ledger.keys.key_material import KeyMaterial, MaterialError
from cloister_api.metering.store import MeteringStore, RunTime
from cloister_api.settings import ApiSettings
from cloister_api.usage import retention
from cloister_api.usage.prices import Price, PriceFileError, import_prices, read_prices
from cloister_api.usage.retention import check
from cloister_clients.clock import utc_now
from cloister_clients.kube import KubeClient, KubeConfig, NotFound
from cloister_clients.kube.kinds import of
from cloister_clients.settings import read_yaml
from cloister_crds.kinds import Organization

T = TypeVar("T")

AGENT = "cloister-admin"
"""User agent and field manager of this command."""
DAY = click.DateTime(["%Y-%m-%d"])
"""A day on the command line."""


@click.group()
def ledger() -> None:
    """Maintenance of the ledger: backup, check, dead-letters, restore, rotate-key, runtime."""


@ledger.command("backup")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@config_option
def back_up(file: Path, config: Path) -> None:
    """Copy the ledger into the new SQLite file FILE, or to standard output (-).

    Facades may keep running.
    """
    settings = settings_of(config)
    with tempfile.TemporaryDirectory(prefix="cloister-backup-") as folder, new_file(file) as raw:
        copied = Path(folder) / "ledger.db"

        def work() -> collection.Sums:
            return collection.back_up(place_of(settings.ledger), copied)

        sums = finish(asyncio.to_thread(work))
        with copied.open("rb") as opened:
            shutil.copyfileobj(opened, raw)
    rows = sum(int(each.split()[0]) for each in sums.values())
    click.echo(f"{rows} rows of {len(sums)} tables backed up", err=True)


@ledger.command("restore")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@config_option
def restore(file: Path, config: Path) -> None:
    """Copy FILE, or standard input (-), into the empty ledger, and prove the copy.

    FILE is what `cloister ledger backup` wrote, or ledger.db of an archive. Restart facades that
    run.
    """
    settings = settings_of(config)

    def work() -> list[str]:
        with tempfile.TemporaryDirectory(prefix="cloister-restore-") as folder:
            copied = Path(folder) / "ledger.db"
            with click.open_file(str(file), "rb") as opened, copied.open("xb") as raw:
                shutil.copyfileobj(opened, raw)
            return restore_copy(copied, settings)

    if found := finish(asyncio.to_thread(work)):
        raise click.ClickException("sums and events differ: " + "; ".join(found))
    click.echo("the ledger is that of the backup, and sums are the sums of events")


def restore_copy(file: Path, settings: ApiSettings) -> list[str]:
    """Restore a copy of the ledger, and return where sums and events differ.

    Raises
    ------
    LedgerError
        When the ledger is in use, or one of the two cannot be used.
    MaterialError
        When the key material is not that of the backup.
    """
    place = place_of(settings.ledger)
    collection.restore(file, place, KeyMaterial.read(settings.ledger.key_material))
    engine = open_to_read(place)
    try:
        return check(engine, utc_now())
    finally:
        engine.dispose()


@ledger.command("check")
@config_option
def check_sums(config: Path) -> None:
    """Prove that sums of usage are the sums of events, and tell which events were not counted.

    Facades may keep running.
    """
    found, uncounted = finish(
        asyncio.to_thread(read_ledger, settings_of(config), check_and_describe)
    )
    for one in (*uncounted, *found):
        click.echo(one)
    if found:
        raise click.ClickException(
            "sums and events differ; keep a copy of the ledger and notify the maintainers"
        )
    click.echo("sums are the sums of events")


def check_and_describe(engine: Engine) -> tuple[list[str], list[str]]:
    """Return the differences of sums and events, and what was not counted."""
    with engine.connect() as connection:
        uncounted = retention.describe(connection)
    return check(engine, utc_now()), uncounted


@ledger.command("dead-letters")
@config_option
def show_dead_letters(config: Path) -> None:
    """Print the usage events that were not counted, without keys: one JSON object a line."""
    for one in finish(asyncio.to_thread(read_ledger, settings_of(config), all_dead_letters)):
        shown = dataclasses.asdict(one)
        shown["received_at"] = one.received_at.isoformat().replace("+00:00", "Z")
        click.echo(json.dumps(shown, ensure_ascii=False))


def all_dead_letters(engine: Engine) -> list[retention.DeadLetter]:
    """Return the dead letters, oldest first."""
    with engine.connect() as connection:
        return list(retention.kept(connection))


def read_ledger(settings: ApiSettings, query: Callable[[Engine], T]) -> T:
    """Migrate the ledger if need be, and return what a query reads from it.

    Raises
    ------
    LedgerError
        When the ledger refuses.
    """
    place = place_of(settings.ledger)
    migrate(place)
    engine = open_to_read(place)
    try:
        return query(engine)
    finally:
        engine.dispose()


@ledger.command("runtime")
@click.option("--organization", required=True, help="Slug of the organization.")
@click.option("--since", type=DAY, required=True, help="First day, in UTC.")
@click.option("--until", type=DAY, required=True, help="Day after the last one, in UTC.")
@config_option
def show_runtime(organization: str, since: datetime, until: datetime, config: Path) -> None:
    """Print how long the containers of an organization served: one JSON object a line."""
    begin, end = (round(day.replace(tzinfo=UTC).timestamp()) for day in (since, until))
    for one in finish(runtime(settings_of(config), organization, begin, end)):
        shown = dataclasses.asdict(one)
        shown["seconds"] = shown.pop("microseconds") / 1_000_000
        click.echo(json.dumps(shown))


async def runtime(settings: ApiSettings, organization: str, begin: int, end: int) -> list[RunTime]:
    """Return how long the containers of an organization served.

    Raises
    ------
    ClickException
        When there is no such organization.
    KubeError
        When the cluster refuses or does not respond.
    LedgerError
        When the ledger refuses.
    """
    kube = KubeConfig.load(settings.kubeconfig, settings.kube_context)
    async with KubeClient(kube, field_manager=AGENT, user_agent=AGENT) as client:
        try:
            found = Organization.read(await client.get(of(Organization), organization))
        except NotFound as error:
            raise click.ClickException(f"there is no organization {organization}") from error
    async with migrated_ledger(settings) as engine:
        return await MeteringStore(engine).of(found.identifier, begin, end)


@ledger.command("rotate-key")
@click.option(
    "--finish", "last", is_flag=True, help="Remove the previous key once every facade has both."
)
@config_option
def rotate_key(last: bool, config: Path) -> None:  # noqa: FBT001 - click passes options by keyword
    """Seal every key with a new sealing key; run it again with --finish afterwards."""
    settings = settings_of(config)
    count = finish(rotate(settings, last=last))
    if last:
        click.echo(f"{count} values re-sealed; the previous sealing key is removed from the file")
    else:
        click.echo(
            f"{count} values re-sealed; facades reload the file within a second of its change, "
            "then run this again with --finish"
        )


async def rotate(settings: ApiSettings, *, last: bool) -> int:
    """Do one half of the rotation, and return how many values were re-sealed.

    Raises
    ------
    ClickException
        When the second half is requested without a first one.
    LedgerError, MaterialError
        When ledger or key material refuse.
    """
    path = settings.ledger.key_material
    async with migrated_ledger(settings) as engine:
        if not last:
            return await rotation.reseal(engine, rotation.begin(path))
        if KeyMaterial.read(path).previous_key is None:
            raise MaterialError(
                f"{path} holds no previous key: there is nothing to finish; start with "
                "`cloister ledger rotate-key`"
            )
        return await rotation.finish(engine, path)


@click.group()
def prices() -> None:
    """Price lists: import."""


@prices.command("import")
@click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@config_option
def import_file(file: Path, config: Path) -> None:
    """Import the price list FILE (YAML) as a new version, in effect from its effectiveFrom."""
    try:
        effective_from, found = read_prices(read_yaml(file.read_bytes()))
    except (PriceFileError, yaml.YAMLError, OSError) as error:
        raise click.ClickException(f"{file}: {error}") from error
    version = finish(import_version(settings_of(config), effective_from, found))
    click.echo(f"price list {version} with {len(found)} prices is imported")


async def import_version(
    settings: ApiSettings, effective_from: datetime, found: tuple[Price, ...]
) -> int:
    """Import a price list, and return its version."""
    async with migrated_ledger(settings) as engine:
        return await import_prices(engine, effective_from, found, utc_now())
