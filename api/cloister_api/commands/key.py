"""``cloister key``: regular keys, for administrators of the installation. No value is shown."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.commands.options import (
    config_option,
    finish,
    migrated_ledger,
    record_command,
    settings_of,
)
from cloister_api.context import material_of
from cloister_api.ledger.audit import AuditTrail
from cloister_api.ledger.keys.api_keys import ApiKey, ApiKeys
from cloister_api.ledger.keys.key_format import masked
from cloister_api.settings import ApiSettings

__all__ = ["key"]


@click.group()
def key() -> None:
    """Regular API keys: list, disable, enable."""


@asynccontextmanager
async def opened(settings: ApiSettings) -> AsyncIterator[tuple[AsyncEngine, ApiKeys]]:
    """Open the ledger for a command."""
    async with migrated_ledger(settings) as engine:
        yield engine, ApiKeys(engine, material_of(settings))


@key.command("list")
@click.option("--organization", default=None, help="Slug; all organizations where not given.")
@config_option
def list_keys(organization: str | None, config: Path) -> None:
    """List regular keys without their values."""
    for found in finish(read(settings_of(config), organization)):
        state = "disabled" if found.disabled else "enabled"
        cap = "no cap" if found.max_tokens is None else f"cap {found.max_tokens}"
        click.echo(
            f"{found.id}\t{found.organization}\t{found.name}\t{masked(found.shown)}\t"
            f"of {found.created_by}\t{found.input_tokens + found.output_tokens} tokens\t{cap}\t"
            f"{state}"
        )


async def read(settings: ApiSettings, organization: str | None) -> list[ApiKey]:
    """Read the keys that are not deleted."""
    async with opened(settings) as (_, keys):
        return await keys.live(organization)


@key.command()
@click.argument("number", type=int)
@config_option
def disable(number: int, config: Path) -> None:
    """Disable the key NUMBER: within a second it is refused like an unknown one."""
    finish(set_disabled(settings_of(config), number, disabled=True))
    click.echo(f"key {number} is disabled")


@key.command()
@click.argument("number", type=int)
@config_option
def enable(number: int, config: Path) -> None:
    """Enable the key NUMBER again."""
    finish(set_disabled(settings_of(config), number, disabled=False))
    click.echo(f"key {number} is enabled")


async def set_disabled(settings: ApiSettings, number: int, *, disabled: bool) -> None:
    """Disable or enable a key.

    Raises
    ------
    ClickException
        When there is no such key.
    """
    async with opened(settings) as (engine, keys):
        known = {each.id: each for each in await keys.live()}
        if number not in known or not await keys.change(number, disabled=disabled):
            raise click.ClickException(
                f"there is no key {number}; `cloister key list` shows the numbers"
            )
        await record_command(
            AuditTrail(engine),
            "api_key.disable" if disabled else "api_key.enable",
            str(number),
            organization=known[number].organization,
            organization_id=known[number].organization_id,
        )
