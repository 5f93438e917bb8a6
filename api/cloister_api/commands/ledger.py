"""``cloister ledger``: maintenance of the ledger."""

import asyncio
import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path

import click

from cloister_api.commands.options import config_option, finish, migrated_ledger, settings_of
from cloister_api.ledger.database import migrate, open_to_read, place_of
from cloister_api.ledger.keys import rotation
from cloister_api.ledger.keys.key_material import KeyMaterial, MaterialError
from cloister_api.metering.store import MeteringStore, RunTime
from cloister_api.settings import ApiSettings
from cloister_api.usage.retention import check
from cloister_clients.clock import utc_now
from cloister_clients.kube import KubeClient, KubeConfig, NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization

__all__ = ["ledger"]

AGENT = "cloister-admin"
"""User agent and field manager of this command."""
DAY = click.DateTime(["%Y-%m-%d"])
"""A day on the command line."""


@click.group()
def ledger() -> None:
    """Maintenance of the ledger: check, rotate-key, runtime."""


@ledger.command("check")
@config_option
def check_sums(config: Path) -> None:
    """Prove that sums of usage are the sums of events; facades may keep running."""
    found = finish(differences(settings_of(config)))
    for one in found:
        click.echo(one)
    if found:
        raise click.ClickException(
            "sums and events differ; keep a copy of the ledger and notify the maintainers"
        )
    click.echo("sums are the sums of events")


async def differences(settings: ApiSettings) -> list[str]:
    """Compare sums and events.

    Raises
    ------
    LedgerError
        When the ledger refuses.
    """
    place = place_of(settings.ledger)
    await asyncio.to_thread(migrate, place)
    engine = open_to_read(place)
    try:
        return await asyncio.to_thread(check, engine, utc_now())
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
