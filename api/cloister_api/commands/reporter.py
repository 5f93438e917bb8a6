"""``cloister reporter``: reporters of usage. A secret is printed once, to standard output."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from cloister_api.commands.options import config_option, finish, migrated_ledger, settings_of
from cloister_api.context import material_of
from cloister_api.ledger.keys.reporters import Reporter, ReporterExistsError, Reporters
from cloister_api.settings import ApiSettings
from cloister_clients.clock import utc_now

__all__ = ["reporter"]

NAME = re.compile(r"^[a-z0-9]([-a-z0-9]{0,62}[a-z0-9])?$")


@click.group()
def reporter() -> None:
    """Create, list and revoke reporters of usage."""


@asynccontextmanager
async def opened(settings: ApiSettings) -> AsyncIterator[Reporters]:
    """Open the ledger for a command."""
    async with migrated_ledger(settings) as engine:
        yield Reporters(engine, material_of(settings))


def valid_name(_: click.Context, __: click.Parameter, name: str) -> str:
    """Refuse a name that is not valid in headers."""
    if not NAME.match(name):
        raise click.BadParameter("use lowercase letters, digits and hyphens, at most 64")
    return name


@reporter.command()
@click.argument("name", callback=valid_name)
@config_option
def create(name: str, config: Path) -> None:
    """Create the reporter NAME and print its secret, once."""
    click.echo(finish(create_reporter(settings_of(config), name)))


async def create_reporter(settings: ApiSettings, name: str) -> str:
    """Create a reporter, and return its secret.

    Raises
    ------
    ClickException
        When the name is or was used.
    """
    async with opened(settings) as reporters:
        try:
            return await reporters.create(name, utc_now())
        except ReporterExistsError as error:
            raise click.ClickException(
                f"there is or was a reporter {name}; choose another name"
            ) from error


@reporter.command("list")
@config_option
def list_reporters(config: Path) -> None:
    """List reporters without their secrets."""
    for one in finish(read(settings_of(config))):
        state = f"revoked {one.revoked_at:%Y-%m-%d}" if one.revoked_at else "valid"
        click.echo(f"{one.id}\tsince {one.created_at:%Y-%m-%d}\t{state}")


async def read(settings: ApiSettings) -> list[Reporter]:
    """Read the reporters."""
    async with opened(settings) as reporters:
        return await reporters.all()


@reporter.command()
@click.argument("name")
@config_option
def revoke(name: str, config: Path) -> None:
    """Revoke the reporter NAME, permanently; its next report is refused."""
    if not finish(revoke_reporter(settings_of(config), name)):
        raise click.ClickException(
            f"there is no valid reporter {name}; `cloister reporter list` shows them"
        )
    click.echo(f"reporter {name} revoked")


async def revoke_reporter(settings: ApiSettings, name: str) -> bool:
    """Revoke a reporter."""
    async with opened(settings) as reporters:
        return await reporters.revoke(name, utc_now())
