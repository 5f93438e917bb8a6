"""``cloister admin-key``, ``key`` and ``reporter``: the keys of an installation.

A new key or secret is printed once, to standard output; values of regular keys are never shown.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import click
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.auth.organizations import administers
from cloister_api.commands.options import (
    config_option,
    finish,
    migrated_ledger,
    record_command,
    settings_of,
)
from cloister_api.context import FIELD_MANAGER, material_of
from cloister_api.ledger.audit import AuditTrail
from cloister_api.ledger.keys.admin_keys import (
    AdminKey,
    AdminKeys,
    Reporter,
    ReporterExistsError,
    Reporters,
)
from cloister_api.ledger.keys.api_keys import ApiKey, ApiKeys
from cloister_api.ledger.keys.key_material import KeyMaterial, MaterialError, masked
from cloister_api.settings import ApiSettings
from cloister_clients.clock import utc_now
from cloister_clients.kube import KubeClient, KubeConfig, NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization


@dataclass(frozen=True, slots=True)
class AdminKeyLedger:
    """The tables that the commands write."""

    keys: AdminKeys
    """Admin keys."""
    audit: AuditTrail
    """Audit trail."""

    async def record(self, action: str, key: AdminKey) -> None:
        """Write the audit row of a command."""
        await record_command(
            self.audit,
            action,
            key.id,
            organization=key.organization,
            organization_id=key.organization_id,
        )


@asynccontextmanager
async def opened_admin_keys(settings: ApiSettings) -> AsyncIterator[AdminKeyLedger]:
    """Open the ledger for a command."""
    material = material_of(settings)
    async with migrated_ledger(settings) as engine:
        yield AdminKeyLedger(AdminKeys(engine, material), AuditTrail(engine))


@click.group(name="admin-key")
def admin_key() -> None:
    """Admin keys: init, create, list, revoke."""


@admin_key.command()
@config_option
def init(config: Path) -> None:
    """Create the key material that admin keys are checked and sealed with."""
    path = settings_of(config).ledger.key_material
    try:
        KeyMaterial.create(path)
    except MaterialError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"key material written to {path}; keep a copy where the ledger's backups are not")


@admin_key.command("create")
@click.option("--organization", required=True, help="Slug of the organization.")
@click.option("--user", required=True, help="Administrator whom the key depends on.")
@click.option("--name", required=True, help="Name for people.")
@click.option("--days", type=click.IntRange(1), default=None, help="Days until it expires.")
@config_option
def create_for_user(
    organization: str, user: str, name: str, days: int | None, config: Path
) -> None:
    """Create an admin key and print it, once."""
    click.echo(finish(create_key(settings_of(config), organization, user, name, days)))


async def create_key(
    settings: ApiSettings, slug: str, user: str, name: str, days: int | None
) -> str:
    """Create a key for an administrator of an organization.

    Raises
    ------
    ClickException
        When there is no such organization or the user is not one of its administrators.
    KubeError
        When the cluster refuses or does not respond.
    """
    config = KubeConfig.load(settings.kubeconfig, settings.kube_context)
    async with KubeClient(config, field_manager=FIELD_MANAGER, user_agent=FIELD_MANAGER) as client:
        try:
            organization = Organization.read(await client.get(of(Organization), slug))
        except NotFound as error:
            raise click.ClickException(
                f"there is no organization {slug}; `cloister org create {slug}` creates it"
            ) from error
    if not administers(organization, user):
        raise click.ClickException(
            f"{user} is not an administrator of {slug}; add the member with role Admin to the "
            "Organization first"
        )
    now = utc_now()
    async with opened_admin_keys(settings) as ledger:
        key, value = await ledger.keys.create(
            organization=slug,
            organization_id=organization.identifier,
            user=user,
            name=name,
            now=now,
            expires_at=now + timedelta(days=days) if days else None,
        )
        await ledger.record("admin_key.create", key)
    return value


@admin_key.command("list")
@click.option("--organization", default=None, help="Slug; all organizations where not given.")
@config_option
def list_admin_keys(organization: str | None, config: Path) -> None:
    """List admin keys without their values."""
    for key in finish(read_keys(settings_of(config), organization)):
        click.echo(line_of(key))


async def read_keys(settings: ApiSettings, organization: str | None) -> list[AdminKey]:
    """Read the keys."""
    async with opened_admin_keys(settings) as ledger:
        return await ledger.keys.all(organization)


def line_of(key: AdminKey) -> str:
    """Return the line of a key in the list."""
    state = "valid"
    if key.revoked_at is not None:
        state = f"revoked: {key.revoked_because}"
    elif key.expires_at is not None:
        state = f"expired {key.expires_at:%Y-%m-%d}"
        if key.expires_at > utc_now():
            state = f"valid until {key.expires_at:%Y-%m-%d}"
    used = f"{key.last_used_at:%Y-%m-%d %H:%M}" if key.last_used_at else "never"
    return (
        f"{key.id}\t{key.organization}\t{key.name}\tadmin_…{key.last_four}\t"
        f"of {key.created_by}\tused {used}\t{state}"
    )


@admin_key.command("revoke")
@click.argument("key_id")
@config_option
def revoke_by_id(key_id: str, config: Path) -> None:
    """Revoke the admin key with the identifier KEY_ID, permanently."""
    if not finish(revoke_key(settings_of(config), key_id)):
        raise click.ClickException(
            f"no valid admin key has the identifier {key_id}; `cloister admin-key list` shows them"
        )
    click.echo(f"admin key {key_id} revoked")


async def revoke_key(settings: ApiSettings, key_id: str) -> bool:
    """Revoke a key; return whether there was a valid one."""
    async with opened_admin_keys(settings) as ledger:
        known = {key.id: key for key in await ledger.keys.all()}
        done = await ledger.keys.revoke(key_id, because="by an administrator", now=utc_now())
        if done:
            await ledger.record("admin_key.revoke", known[key_id])
    return done


@click.group()
def key() -> None:
    """Regular API keys: list, disable, enable."""


@asynccontextmanager
async def opened_api_keys(settings: ApiSettings) -> AsyncIterator[tuple[AsyncEngine, ApiKeys]]:
    """Open the ledger for a command."""
    async with migrated_ledger(settings) as engine:
        yield engine, ApiKeys(engine, material_of(settings))


@key.command("list")
@click.option("--organization", default=None, help="Slug; all organizations where not given.")
@config_option
def list_keys(organization: str | None, config: Path) -> None:
    """List regular keys without their values."""
    for found in finish(read_api_keys(settings_of(config), organization)):
        state = "disabled" if found.disabled else "enabled"
        cap = "no cap" if found.max_tokens is None else f"cap {found.max_tokens}"
        click.echo(
            f"{found.id}\t{found.organization}\t{found.name}\t{masked(found.shown)}\t"
            f"of {found.created_by}\t{found.input_tokens + found.output_tokens} tokens\t{cap}\t"
            f"{state}"
        )


async def read_api_keys(settings: ApiSettings, organization: str | None) -> list[ApiKey]:
    """Read the keys that are not deleted."""
    async with opened_api_keys(settings) as (_, keys):
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
    async with opened_api_keys(settings) as (engine, keys):
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


NAME = re.compile(r"^[a-z0-9]([-a-z0-9]{0,62}[a-z0-9])?$")


@click.group()
def reporter() -> None:
    """Create, list and revoke reporters of usage."""


@asynccontextmanager
async def opened_reporters(settings: ApiSettings) -> AsyncIterator[Reporters]:
    """Open the ledger for a command."""
    async with migrated_ledger(settings) as engine:
        yield Reporters(engine, material_of(settings))


def valid_name(_: click.Context, __: click.Parameter, name: str) -> str:
    """Refuse a name that is not valid in headers."""
    if not NAME.match(name):
        raise click.BadParameter("use lowercase letters, digits and hyphens, at most 64")
    return name


@reporter.command("create")
@click.argument("name", callback=valid_name)
@config_option
def create_named(name: str, config: Path) -> None:
    """Create the reporter NAME and print its secret, once."""
    click.echo(finish(create_reporter(settings_of(config), name)))


async def create_reporter(settings: ApiSettings, name: str) -> str:
    """Create a reporter, and return its secret.

    Raises
    ------
    ClickException
        When the name is or was used.
    """
    async with opened_reporters(settings) as reporters:
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
    for one in finish(read_reporters(settings_of(config))):
        state = f"revoked {one.revoked_at:%Y-%m-%d}" if one.revoked_at else "valid"
        click.echo(f"{one.id}\tsince {one.created_at:%Y-%m-%d}\t{state}")


async def read_reporters(settings: ApiSettings) -> list[Reporter]:
    """Read the reporters."""
    async with opened_reporters(settings) as reporters:
        return await reporters.all()


@reporter.command("revoke")
@click.argument("name")
@config_option
def revoke_named(name: str, config: Path) -> None:
    """Revoke the reporter NAME, permanently; its next report is refused."""
    if not finish(revoke_reporter(settings_of(config), name)):
        raise click.ClickException(
            f"there is no valid reporter {name}; `cloister reporter list` shows them"
        )
    click.echo(f"reporter {name} revoked")


async def revoke_reporter(settings: ApiSettings, name: str) -> bool:
    """Revoke a reporter."""
    async with opened_reporters(settings) as reporters:
        return await reporters.revoke(name, utc_now())
