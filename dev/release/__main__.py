"""``python -m dev.release VERSION``, the command of `make release`."""

import os
from dataclasses import replace
from pathlib import Path

import click

from dev.cluster import LocalClusterError, Progress
from dev.images import tools
from dev.images.errors import ImageError
from dev.images.release import ROOT, current
from dev.release.assembly import Assembly
from dev.release.errors import ReleaseError
from dev.release.preconditions import check, look
from dev.release.signing import KEY, Signer


@click.command()
@click.argument("version")
@click.option("--uv", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--registry", "to", required=True, help="Push images and chart there: host/path.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="Folder to make.")
@click.option("--source", default="", help="Public address of the repository.")
@click.option("--downloads", default="", help="Address at which that folder will be found.")
def main(version: str, uv: Path, to: str, output: Path | None, source: str, downloads: str) -> None:
    """Release VERSION of this checkout, into a folder and a registry."""
    try:
        release = current(source)
        folder = (output or ROOT / "dist" / f"release-{version}").resolve()
        check(look(ROOT, release.version), version, folder)
        signer = Signer.of(os.environ)
        progress = Progress()
        tools.prepare(progress)
        Assembly(
            replace(release, version=version),
            uv,
            to.rstrip("/"),
            folder,
            downloads,
            signer,
            progress,
        ).run()
    except (ReleaseError, ImageError, LocalClusterError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"Cloister {version} is in {folder} and {to}")
    if signer is None:
        click.echo(f"It is not signed: {KEY} names no key (docs/images.md)")
    if not downloads:
        click.echo(
            "krew.yaml is for `kubectl krew install --manifest --archive`: no DOWNLOADS was named"
        )
    click.echo(f"Next: git tag v{version}, and publish the folder")


if __name__ == "__main__":
    main()
