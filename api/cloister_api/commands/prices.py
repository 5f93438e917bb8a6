"""``cloister prices``: price lists."""

import asyncio
from datetime import datetime
from pathlib import Path

import click
import yaml

from cloister_api.commands.options import config_option, finish, settings_of
from cloister_api.ledger.database import migrate, open_ledger, place_of
from cloister_api.settings import ApiSettings
from cloister_api.usage.price_lists import import_prices
from cloister_api.usage.prices import Price, PriceFileError, read_prices
from cloister_clients.clock import utc_now
from cloister_clients.yaml_file import read_yaml

__all__ = ["prices"]


@click.group()
def prices() -> None:
    """Price lists: import."""


@prices.command("import")
@click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@config_option
def import_file(file: Path, config: Path) -> None:
    """Import the price list FILE (YAML) as a new version, in force from its effectiveFrom on."""
    try:
        effective_from, found = read_prices(read_yaml(file.read_bytes()))
    except (PriceFileError, yaml.YAMLError, OSError) as error:
        raise click.ClickException(f"{file}: {error}") from error
    version = finish(imported(settings_of(config), effective_from, found))
    click.echo(f"price list {version} with {len(found)} prices is imported")


async def imported(
    settings: ApiSettings, effective_from: datetime, found: tuple[Price, ...]
) -> int:
    """Import a price list and answer its version."""
    place = place_of(settings.ledger)
    await asyncio.to_thread(migrate, place)
    engine = open_ledger(place)
    try:
        return await import_prices(engine, effective_from, found, utc_now())
    finally:
        await engine.dispose()
