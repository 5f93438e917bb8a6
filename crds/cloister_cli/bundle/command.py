"""``cloister support-bundle``: writes the archive."""

import asyncio
import io
import json
import os
import tarfile
from datetime import datetime
from pathlib import Path
from typing import Final

import click

from cloister_cli.bundle.collection import Collection
from cloister_cli.doctor.command import check_cluster, document
from cloister_cli.doctor.options import cluster_options
from cloister_clients.clock import utc_now
from cloister_clients.kube import ConfigError, KubeClient, KubeConfig

__all__ = ["support_bundle"]

README: Final = """\
A support bundle of Cloister. doctor.json: checks with remedies. objects: Cloister's kinds.
enclaves: Pods and Services of enclaves. system: the operator's namespace. events: by namespace.
logs, metrics: of the operator and the API; nothing that enclaves write. problems.txt: what could
not be read.

Values of variables and Secrets, commands, data of ConfigMaps, members of organizations, and labels
and annotations that others chose are left out. Look through it before you pass it on.
"""


@click.command("support-bundle")
@cluster_options
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Archive to write; default cloister-support-TIME.tar.gz in the present directory.",
)
@click.option(
    "--log-lines",
    type=click.IntRange(1, 1_000_000),
    default=5000,
    show_default=True,
    help="Lines of each log, from its end.",
)
def support_bundle(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    output: Path | None,
    log_lines: int,
) -> None:
    """Collect what somebody who helps needs to see, without secrets, in one archive.

    The more the caller may read, the more it holds. It reads Secrets, where it may, only to find
    their values in other texts.
    """
    try:
        config = KubeConfig.load(kubeconfig, context)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    now = utc_now()
    path = output or Path(f"cloister-support-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    files = asyncio.run(collect(config, namespace, log_lines))
    try:
        write(path, files, now)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
    problems = len(files["problems.txt"].splitlines())
    missing = f"; {problems} things could not be read, see problems.txt" if problems else ""
    click.echo(f"{path}: {len(files)} files{missing}. Look through it before you pass it on.")


async def collect(config: KubeConfig, namespace: str, log_lines: int) -> dict[str, str]:
    """Return the files of a bundle, by name."""
    async with KubeClient(
        config, field_manager="cloister-support", user_agent="cloister-support"
    ) as client:
        collection = Collection(client, namespace, log_lines)
        files = {"README.txt": README} | {name: text async for name, text in collection.files()}
        findings = await check_cluster(config, client, namespace)
    files["doctor.json"] = collection.redact(json.dumps(document(findings), indent=2))
    files["problems.txt"] = "".join(f"{each}\n" for each in collection.problems)
    return files


def write(path: Path, files: dict[str, str], now: datetime) -> None:
    """Write an archive that only its owner may read.

    Raises
    ------
    OSError
        When it exists or cannot be written.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    folder = path.name.removesuffix(".tar.gz")
    with os.fdopen(handle, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime = len(content), int(now.timestamp())
            archive.addfile(entry, io.BytesIO(content))
