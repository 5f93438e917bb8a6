"""``cloister backup`` and ``cloister restore``: a whole installation in one archive."""

import asyncio
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

import click

from cloister_api.backup import collection
from cloister_api.backup.archive import (
    LEDGER,
    Archive,
    ArchiveError,
    Manifest,
    write_archive,
)
from cloister_api.backup.collection import Lines, collect
from cloister_api.backup.restoration import FIELD_MANAGER, Hold, Restoration, RestoreRefusedError
from cloister_api.commands.ledger import restore_copy
from cloister_api.commands.options import (
    finish,
    kubeconfig_option,
    migrated_ledger,
    new_file,
    record_command,
    settings_of,
)
from cloister_api.ledger.audit import AuditTrail
from cloister_api.ledger.database import place_of
from cloister_api.ledger.last_backup import ACTION, TARGET
from cloister_api.settings import ApiSettings
from cloister_clients.clock import utc_now
from cloister_clients.kube import KubeClient, KubeConfig

BACKUP: Final = "cloister-backup"

context_option = click.option(
    "--context", help="Context of the kubeconfig file; default its current one."
)
namespace_option = click.option(
    "--namespace", default="cloister-system", show_default=True, help="Namespace of the programs."
)
settings_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Settings file of the API, which names the ledger.",
)
no_ledger_option = click.option(
    "--no-ledger", is_flag=True, help="The ledger is not part of it: PostgreSQL's own tools do it."
)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@kubeconfig_option
@context_option
@namespace_option
@settings_option
@click.option(
    "--ledger",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What `cloister ledger backup` wrote where the ledger is.",
)
@no_ledger_option
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    help="Secret of the namespace to include, in addition to those that the programs name; "
    "repeatable.",
)
def backup(
    file: Path,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    config: Path | None,
    ledger: Path | None,
    no_ledger: bool,  # noqa: FBT001 - click passes options by keyword
    secrets: tuple[str, ...],
) -> None:
    """Write the installation into the archive FILE, or - for standard output.

    Everything keeps running. The archive holds secrets in the clear: encrypt it. With --config the
    ledger records that there is one, and the API reports when that was.
    """
    if sum((config is not None, ledger is not None, no_ledger)) != 1:
        raise click.ClickException("give one of --config, --ledger and --no-ledger")
    settings = settings_of(config) if config is not None else None

    async def read() -> tuple[dict[str, Lines], list[str], str]:
        async with open_client(kubeconfig, context, BACKUP) as client:
            objects, left_out = await collect(client, namespace, secrets)
            return objects, left_out, await client.server_version()

    with new_file(file) as raw, tempfile.TemporaryDirectory(prefix="cloister-backup-") as folder:
        # The ledger first: a key or an id in it is one that the cluster has, or had.
        if settings is not None:
            ledger = Path(folder) / LEDGER
            finish(asyncio.to_thread(copy_ledger, settings, ledger))
        objects, left_out, server = finish(read())
        manifest = Manifest(cloister=version("cloister"), kubernetes=server, created_at=utc_now())
        manifest = write_archive(raw, manifest, objects, ledger)
    if settings is not None:
        finish(record(settings))
    for sentence in left_out:
        click.echo(f"not in it: {sentence}", err=True)
    click.echo(f"{file}: {described(manifest)}. It holds secrets in the clear.", err=True)


async def record(settings: ApiSettings) -> None:
    """Record in the ledger that the installation was backed up.

    Raises
    ------
    LedgerError
        When it cannot be opened.
    """
    async with migrated_ledger(settings) as engine:
        await record_command(AuditTrail(engine), ACTION, TARGET)


def described(manifest: Manifest) -> str:
    """Return what an archive holds, as a sentence."""
    parts = [
        f"{entry.objects} {name.removeprefix('objects/').removesuffix('.jsonl').replace('-', ' ')}"
        for name, entry in manifest.files.items()
        if entry.objects
    ]
    parts.append("the ledger" if LEDGER in manifest.files else "no ledger")
    return ", ".join(parts)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@kubeconfig_option
@context_option
@namespace_option
@click.option(
    "--lease",
    default="cloister-operator",
    show_default=True,
    help="Lease of the operator (setting lease.name): held until the restore is complete.",
)
@settings_option
@no_ledger_option
@click.option("--dry-run", is_flag=True, help="Check everything, and change nothing.")
def restore(
    file: Path,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    lease: str,
    config: Path | None,
    no_ledger: bool,  # noqa: FBT001 - click passes options by keyword
    dry_run: bool,  # noqa: FBT001 - as above
) -> None:
    """Restore the archive FILE into an empty cluster, as its administrator.

    Objects get the identifiers that they had; secrets, keys and sums are compared at the end. No
    operator may run meanwhile, and none leads until the restore is complete: after an interruption
    run it again.
    """
    settings = settings_of(config) if config is not None else None
    try:
        with Archive.read(file) as archive:
            has_ledger = LEDGER in archive.manifest.files
            if has_ledger and (settings is None) != no_ledger:
                raise click.ClickException(
                    "the archive holds the ledger: give one of --config and --no-ledger"
                )
            if not has_ledger and settings is not None:
                raise click.ClickException("the archive holds no ledger: leave --config out")

            async def work() -> list[str]:
                async with open_client(kubeconfig, context, FIELD_MANAGER) as client:
                    restoration = Restoration(client, archive, namespace)
                    hold = Hold(client, namespace, lease)
                    await check_restorable(restoration, hold, archive)
                    # After all checks and before the first write.
                    if dry_run:
                        return []
                    return await restored(restoration, hold, archive, settings)

            for note in finish(work()):
                click.echo(note, err=True)
    except (ArchiveError, RestoreRefusedError) as error:
        raise click.ClickException(str(error)) from error
    if dry_run:
        click.echo(f"can be restored: {described(archive.manifest)}")
        return
    click.echo(f"in the archive: {described(archive.manifest)}")
    if settings is None:
        click.echo("the ledger was not restored")
    click.echo(
        "restored: identifiers, specs, values and sums are those of the backup. Restart the API, "
        "and start the operator"
    )


def open_client(kubeconfig: Path | None, context: str | None, name: str) -> KubeClient:
    """Open a client.

    Raises
    ------
    ConfigError
        When no cluster is configured.
    """
    config = KubeConfig.load(kubeconfig, context)
    return KubeClient(config, field_manager=name, user_agent=name)


async def check_restorable(restoration: Restoration, hold: Hold, archive: Archive) -> None:
    """Check whether an archive can be restored.

    Raises
    ------
    RestoreRefusedError, KubeError
        When it cannot.
    """
    restoration.check_archive()
    await restoration.check_cluster(begun=await hold.begun(archive.digest))


async def restored(
    restoration: Restoration, hold: Hold, archive: Archive, settings: ApiSettings | None
) -> list[str]:
    """Restore an archive, and return what somebody should know.

    Parameters
    ----------
    hold
        What keeps operators from acting meanwhile.
    settings
        Settings with the ledger; None if it is not restored.

    Raises
    ------
    RestoreRefusedError, KubeError, LedgerError, MaterialError
        When it cannot be restored, or is not what it was.
    """
    await hold.take(archive.digest)
    differing = []
    if settings is not None:
        # First, since it is refused when the key material is not that of the backup.
        differing += await asyncio.to_thread(restore_ledger, archive, settings)
    await restoration.write()
    differing += await restoration.differences()
    if differing:
        raise RestoreRefusedError(
            "what was restored is not what it was, and no operator leads until it is: "
            + "; ".join(differing)
        )
    await hold.release()
    return restoration.notes


def copy_ledger(settings: ApiSettings, file: Path) -> None:
    """Copy the ledger into a new file.

    Raises
    ------
    LedgerError
        When it cannot be read.
    """
    collection.back_up(place_of(settings.ledger), file)


def restore_ledger(archive: Archive, settings: ApiSettings) -> list[str]:
    """Restore the ledger, as `restore_copy` does."""
    with tempfile.TemporaryDirectory(prefix="cloister-restore-") as folder:
        file = Path(folder) / LEDGER
        archive.write_ledger(file)
        return restore_copy(file, settings)
