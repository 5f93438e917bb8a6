"""``cloister admin-key``: keys of the REST API. A key is printed once, to standard output."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import click

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
from cloister_api.ledger.keys.admin_keys import AdminKey, AdminKeys
from cloister_api.ledger.keys.key_material import KeyMaterial, MaterialError
from cloister_api.settings import ApiSettings
from cloister_clients.clock import utc_now
from cloister_clients.kube import KubeClient, KubeConfig, NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization

__all__ = ["admin_key"]


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
async def opened(settings: ApiSettings) -> AsyncIterator[AdminKeyLedger]:
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


@admin_key.command()
@click.option("--organization", required=True, help="Slug of the organization.")
@click.option("--user", required=True, help="Administrator whom the key depends on.")
@click.option("--name", required=True, help="Name for people.")
@click.option("--days", type=click.IntRange(1), default=None, help="Days until it expires.")
@config_option
def create(organization: str, user: str, name: str, days: int | None, config: Path) -> None:
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
    async with opened(settings) as ledger:
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
def list_keys(organization: str | None, config: Path) -> None:
    """List admin keys without their values."""
    for key in finish(read_keys(settings_of(config), organization)):
        click.echo(line_of(key))


async def read_keys(settings: ApiSettings, organization: str | None) -> list[AdminKey]:
    """Read the keys."""
    async with opened(settings) as ledger:
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


@admin_key.command()
@click.argument("key_id")
@config_option
def revoke(key_id: str, config: Path) -> None:
    """Revoke the admin key with the identifier KEY_ID, permanently."""
    if not finish(revoke_key(settings_of(config), key_id)):
        raise click.ClickException(
            f"no valid admin key has the identifier {key_id}; `cloister admin-key list` shows them"
        )
    click.echo(f"admin key {key_id} revoked")


async def revoke_key(settings: ApiSettings, key_id: str) -> bool:
    """Revoke a key; return whether there was a valid one."""
    async with opened(settings) as ledger:
        known = {key.id: key for key in await ledger.keys.all()}
        done = await ledger.keys.revoke(key_id, because="by an administrator", now=utc_now())
        if done:
            await ledger.record("admin_key.revoke", known[key_id])
    return done
