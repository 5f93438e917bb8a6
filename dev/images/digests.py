"""The file `images.lock`: which images belong together; the chart takes its digests."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from dev.images.release import Release


def write(path: Path, release: Release, digests: Mapping[str, str], registry: str) -> None:
    """Write the file.

    Parameters
    ----------
    digests
        Name of an image -> digest of its index.
    registry
        Where the images were pushed to, ``host/path``; "" = nowhere yet.
    """
    lines = [
        "# Written by `make images`: the images of one version, by the digest of their index.",
        f'version = "{release.version}"',
        f'revision = "{release.revision}"',
        *([f'registry = "{registry}"'] if registry else []),
        "",
        "[digests]",
        *(f'{name} = "{digest}"' for name, digest in digests.items()),
    ]
    path.write_text("\n".join(lines) + "\n")


def read(path: Path) -> dict[str, str]:
    """Return the digest of each image."""
    found: dict[str, str] = tomllib.loads(path.read_text())["digests"]
    return found
