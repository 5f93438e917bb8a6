"""``cloister session``: people who are signed in to the dashboard."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import click
from pydantic import ValidationError

from cloister_api.commands.options import (
    config_option,
    finish,
    migrated_ledger,
    record_command,
    settings_of,
)
from cloister_api.context import material_of
from cloister_api.ledger.audit import AuditTrail
from cloister_api.ledger.keys.sessions import SessionLinks, SessionRow, SessionTable
from cloister_api.sessions.sessions import is_over
from cloister_api.sessions.settings import DashboardSettings
from cloister_api.settings import ApiSettings
from cloister_clients.clock import utc_now
from cloister_crds.kinds.organization import Member

NO_DASHBOARD = "the settings name no dashboard, so that nobody can sign in; set dashboard.address"


@dataclass(frozen=True, slots=True)
class SessionLedger:
    """The tables that the commands write."""

    sessions: SessionTable
    """Sessions."""
    links: SessionLinks
    """One-time links."""
    audit: AuditTrail
    """Audit trail."""

    async def record(self, action: str, user: str, target: str) -> None:
        """Write the audit row of a command; it is of no organization."""
        await record_command(self.audit, action, f"{user} {target}".strip())


@asynccontextmanager
async def opened(settings: ApiSettings) -> AsyncIterator[SessionLedger]:
    """Open the ledger for a command."""
    material = material_of(settings)
    async with migrated_ledger(settings) as engine:
        yield SessionLedger(
            SessionTable(engine, material), SessionLinks(engine, material), AuditTrail(engine)
        )


def dashboard_of(settings: ApiSettings) -> DashboardSettings:
    """Return the settings of the dashboard.

    Raises
    ------
    ClickException
        When there is none.
    """
    if settings.dashboard is None:
        raise click.ClickException(NO_DASHBOARD)
    return settings.dashboard


@click.group()
def session() -> None:
    """Sign-ins to the dashboard: link, list, end."""


@session.command()
@click.option("--user", required=True, help="Whom it signs in, as Organizations name members.")
@click.option("--minutes", type=click.IntRange(1, 60), default=10, show_default=True)
@config_option
def link(user: str, minutes: int, config: Path) -> None:
    """Print an address that signs a user in, once."""
    settings = settings_of(config)
    dashboard = dashboard_of(settings)
    if not dashboard.one_time_links:
        raise click.ClickException(
            "the settings switch one-time links off; set dashboard.oneTimeLinks to true"
        )
    if not is_user(user):
        raise click.ClickException(
            f"{user!r} is not a user name: write 1 to 253 characters without spaces, such as "
            "ada@example.com, as the Organization's spec.members does"
        )
    token = finish(create_link(settings, user, minutes))
    click.echo(f"{dashboard.address}/session/once/{token}")


def is_user(text: str) -> bool:
    """Return whether a text may be a member of an Organization."""
    try:
        Member(user=text)
    except ValidationError:
        return False
    return True


async def create_link(settings: ApiSettings, user: str, minutes: int) -> str:
    """Return the token of a new link."""
    async with opened(settings) as ledger:
        token = await ledger.links.create(user, now=utc_now(), life=timedelta(minutes=minutes))
        await ledger.record("session.link", user, "")
    return token


@session.command("list")
@config_option
def list_sessions(config: Path) -> None:
    """List the sessions that last, oldest first."""
    settings = settings_of(config)
    dashboard, now = dashboard_of(settings), utc_now()
    for each in finish(read_sessions(settings)):
        if not is_over(each, now, dashboard.session):
            click.echo(line_of(each))


async def read_sessions(settings: ApiSettings) -> list[SessionRow]:
    """Read the sessions."""
    async with opened(settings) as ledger:
        return await ledger.sessions.all()


def line_of(row: SessionRow) -> str:
    """Return the line of a session in the list."""
    return (
        f"{row.id}\t{row.user}\tsince {row.created_at:%Y-%m-%d %H:%M}\t"
        f"used {row.seen_at:%Y-%m-%d %H:%M}\tuntil {row.ends_at:%Y-%m-%d %H:%M}\t"
        f"{row.method}\t{row.agent}"
    )


@session.command()
@click.argument("session_id", required=False)
@click.option("--user", default=None, help="End every session of a user, and their unused links.")
@config_option
def end(session_id: str | None, user: str | None, config: Path) -> None:
    """End the session SESSION_ID, immediately in all replicas."""
    if (session_id is None) == (user is None):
        raise click.UsageError("give either the identifier of a session or --user")
    ended, links = finish(end_sessions(settings_of(config), session_id, user))
    if not ended and not links:
        raise click.ClickException("no such session lasts; `cloister session list` shows them")
    for each in ended:
        click.echo(f"session {each.id} of {each.user} ended")
    if links:
        click.echo(f"{links} unused links of {user} ended")


async def end_sessions(
    settings: ApiSettings, session_id: str | None, user: str | None
) -> tuple[list[SessionRow], int]:
    """End one session, or all of a user; return those that were ended, and how many links."""
    ended, links = [], 0
    async with opened(settings) as ledger:
        for each in await ledger.sessions.all():
            if each.ended_at is None and (each.id == session_id or each.user == user):
                done = await ledger.sessions.end(
                    each.id, because="by an administrator", now=utc_now()
                )
                if done is not None:
                    ended.append(done)
                    await ledger.record("session.end", each.user, each.id)
        if user is not None:
            links = await ledger.links.end(user, utc_now())
    return ended, links
