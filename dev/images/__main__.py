"""``python -m dev.images build|lock|earlier``, for the targets of the Makefile."""

from pathlib import Path

import click

from dev.cluster import LocalClusterError, Progress
from dev.images import debian, digests, registry, tools
from dev.images.build import Build
from dev.images.earlier import EarlierRelease
from dev.images.errors import ImageError
from dev.images.release import ROOT, current

TARGET = ROOT / "dist" / "images"


@click.group()
def main() -> None:
    """Build the images of a release."""


@main.command()
@click.option("--uv", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--registry", "to", default="", help="Push them there: host/path.")
@click.option("--source", default="", help="Public address of the repository, for labels.")
@click.option("--target", default=TARGET, type=click.Path(file_okay=False, path_type=Path))
def build(uv: Path, to: str, source: str, target: Path) -> None:
    """Build all images, and write `images.lock` with their digests."""
    try:
        progress = Progress()
        tools.prepare(progress)
        one = Build(target.resolve(), uv, current(source), progress)
        found = one.run()
        if to:
            registry.push(one.layout, found, to, one.release.version)
        digests.write(target / "images.lock", one.release, found, to)
    except (ImageError, LocalClusterError) as error:
        raise click.ClickException(str(error)) from error
    click.echo((target / "images.lock").read_text(), nl=False)


@main.command()
def lock() -> None:
    """Resolve the packages of the base again, and write `images/base.lock`."""
    try:
        tools.prepare(Progress())
        debian.renew()
    except (ImageError, LocalClusterError) as error:
        raise click.ClickException(str(error)) from error


@main.command()
def earlier() -> None:
    """Build the release that tests upgrade from, unless it is in the cache; print its folder."""
    try:
        release = EarlierRelease.read()
        release.rebuild(Progress())
    except (ImageError, LocalClusterError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(release.folder)


if __name__ == "__main__":
    main()
