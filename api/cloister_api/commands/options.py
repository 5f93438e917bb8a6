"""What the commands share: options, the opened ledger, errors as one sentence."""

import asyncio
import getpass
import os
import sys
import uuid
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import click
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.context import opened_ledger
from cloister_api.ledger.audit import COMMAND_LINE, AuditRow, AuditTrail
from cloister_api.ledger.database import LedgerError
from cloister_api.ledger.keys.key_material import MaterialError
from cloister_api.settings import ApiSettings
from cloister_clients.clock import utc_now
from cloister_clients.kube import ConfigError, KubeError
from cloister_clients.settings import SettingsError

T = TypeVar("T")

config_option = click.option(
    "--config",
    envvar="CLOISTER_CONFIG",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Settings file of the facade (YAML); $CLOISTER_CONFIG where not given.",
)
kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Kubeconfig file; where not given $KUBECONFIG, the Pod's account, ~/.kube/config.",
)


def settings_of(path: Path) -> ApiSettings:
    """Read the settings file.

    Raises
    ------
    ClickException
        When it cannot be used.
    """
    try:
        return ApiSettings.read(path)
    except SettingsError as error:
        raise click.ClickException(str(error)) from error


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work, and report its error in one sentence.

    Raises
    ------
    ClickException
        When the cluster, the ledger or the key material refuse.
    """
    try:
        return asyncio.run(work)
    except (ConfigError, KubeError, LedgerError, MaterialError) as error:
        raise click.ClickException(str(error)) from error


@asynccontextmanager
async def migrated_ledger(settings: ApiSettings) -> AsyncIterator[AsyncEngine]:
    """Migrate the ledger, and open it for a command.

    Raises
    ------
    LedgerError
        When it cannot be opened.
    """
    engine = await opened_ledger(settings)
    try:
        yield engine
    finally:
        await engine.dispose()


async def record_command(
    audit: AuditTrail,
    action: str,
    target: str,
    *,
    organization: str = "",
    organization_id: str | None = None,
) -> None:
    """Write the audit row of a command.

    Parameters
    ----------
    action
        What was done, such as ``admin_key.create``.
    organization
        Slug of the organization; empty if it is of none.
    organization_id
        Identifier of that; None if it is not known.
    """
    await audit.add(
        AuditRow(
            at=utc_now(),
            request_id=str(uuid.uuid4()),
            organization=organization,
            actor=COMMAND_LINE + getpass.getuser(),
            key_id=None,
            action=action,
            target=target,
            result="ok",
            organization_id=organization_id,
        )
    )


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Write a file that only its owner may read; without success there is none.

    Raises
    ------
    ClickException
        When it exists, or cannot be written.
    """
    if str(path) == "-":
        yield sys.stdout.buffer
        return
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as raw:
            yield raw
            raw.flush()
            os.fsync(raw.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise click.ClickException(f"{path}: {error.strerror}") from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise
