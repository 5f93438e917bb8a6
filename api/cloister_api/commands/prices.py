"""``cloister prices``: price lists."""

from datetime import datetime
from pathlib import Path

import click
import yaml

from cloister_api.commands.options import config_option, finish, migrated_ledger, settings_of
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
