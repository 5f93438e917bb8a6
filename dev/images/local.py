"""The images of this checkout for this machine alone, kept in the cache for what they are made of.

The demo and the tests install from them. An unchanged checkout builds nothing.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dev.cluster.binaries import cache_folder, go_version
from dev.cluster.processes import Progress, duration
from dev.images import digests, registry, tools
from dev.images.build import IMAGES, Build
from dev.images.release import ROOT, Release

SOURCES: Final = (
    *("images", "dev/images", "dev/cluster/guest.py", "dev/cluster/binaries.py"),
    *("operator/guest", "pyproject.toml", "uv.lock", "README.md", "LICENSE"),
)
"""What the images are made of, beside our packages and Go itself."""
TIME: Final = 946684800
"""Time of every file, in seconds of Unix time: not the commit's, which changes without them."""
KEPT, IDLE = 3, 3600.0
"""Images that stay in the cache, and seconds without use after which others are removed."""


@dataclass(frozen=True, slots=True)
class LocalImages:
    """Built images."""

    folder: Path
    release: Release

    @property
    def digests(self) -> dict[str, str]:
        """Digest of each image that an installation runs."""
        found = digests.read(self.folder / "images.lock")
        return {name: found[name] for name in IMAGES}

    def push(self, to: str, folder: Path) -> Path:
        """Copy them into a registry; what it has already is not sent again.

        Parameters
        ----------
        to
            ``host/path``.
        folder
            Where the digests are written.

        Returns
        -------
        Path
            The file `images.lock` of a chart that takes them from there.

        Raises
        ------
        ImageError
            When the registry refuses or does not respond.
        """
        registry.push(self.folder / "oci", self.digests, to, self.release.version)
        digests.write(folder / "images.lock", self.release, self.digests, to)
        return folder / "images.lock"


def local_images(progress: Progress) -> LocalImages:
    """Return the images of this checkout; build them when they are not in the cache.

    Raises
    ------
    ImageError
        When this is not root, or an image cannot be built.
    LocalClusterError
        When a program is missing that they are built with, and cannot be had.
    """
    tools.prepare(progress)
    name = key()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    images = LocalImages(_cache() / name, Release(version, f"local-{name}", TIME))
    if not images.folder.exists():
        with _lock():
            if not images.folder.exists():
                _build(images, progress)
    os.utime(images.folder)
    _remove_old()
    return images


def _build(images: LocalImages, progress: Progress) -> None:
    since = time.monotonic()
    progress.say(f"building the images of this checkout once, into {images.folder}")
    with tempfile.TemporaryDirectory(prefix=".build-", dir=images.folder.parent) as scratch:
        build = Build(Path(scratch), tools.uv(), images.release, progress, (tools.architecture(),))
        found = build.run()
        made = Path(scratch, "made")
        made.mkdir()
        build.layout.rename(made / "oci")
        digests.write(made / "images.lock", images.release, found, "")
        made.rename(images.folder)
    progress.say(f"the images are built after {duration(time.monotonic() - since)}")


def _cache() -> Path:
    return cache_folder() / "images" / "local"


@contextmanager
def _lock() -> Iterator[None]:
    _cache().mkdir(parents=True, exist_ok=True)
    with (_cache() / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_old() -> None:
    """Remove the images of other states of the checkout that nobody has used for a while."""
    used = {path: path.stat().st_mtime for path in _cache().iterdir() if path.is_dir()}
    now = max(used.values())
    for path in sorted(used, key=used.__getitem__, reverse=True)[KEPT:]:
        if now - used[path] > IDLE:
            # Another run may remove it too.
            shutil.rmtree(path, ignore_errors=True)


def key() -> str:
    """Hash what the images follow from: 12 hexadecimal digits."""
    digest = hashlib.sha256(repr((tools.architecture(), go_version())).encode())
    for path in _sources():
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


def _sources() -> Iterator[Path]:
    """Return every file that the images follow from."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    for part in (*SOURCES, *packages):
        place = ROOT / part
        found = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (path for path in found if path.is_file() and "__pycache__" not in path.parts)
