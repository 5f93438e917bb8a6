"""The base's root as a tar, kept in the cache for each content of `base.toml` and `base.lock`."""

import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.binaries import cache_folder
from dev.cluster.processes import Progress
from dev.images import debian, rootfs
from dev.images.debian import BaseSpec, LockedPackage
from dev.images.errors import ImageError


@dataclass(frozen=True, slots=True)
class Root:
    """The root of one architecture."""

    tar: Path

    @classmethod
    def of(cls, spec: BaseSpec, architecture: str, progress: Progress) -> "Root":
        """Return the root; fetch its packages when it is not in the cache.

        Raises
        ------
        ImageError
            When the packages cannot be had as they are locked.
        """
        tar = cache_folder() / "images" / f"base-{architecture}-{_key()}.tar"
        if not tar.exists():
            progress.say(f"fetching the Debian packages of {architecture}")
            tar.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="cloister-debs-", dir=tar.parent) as folder:
                packages = debian.fetch(spec, architecture, Path(folder, "debs"))
                written = Path(folder, "base.tar")
                rootfs.write_tar(rootfs.entries(spec, packages), written, 0)
                written.rename(tar)
        return cls(tar)

    def link(self, to: Path) -> None:
        """Put the tar into the folder of a build."""
        try:
            os.link(self.tar, to)
        except OSError:
            # Another disk, or a folder of the machine that allows no links.
            shutil.copy(self.tar, to)

    def copyrights(self, packages: Iterable[LockedPackage]) -> dict[str, str]:
        """Return the copyright file of each package, by its name.

        Raises
        ------
        ImageError
            When one has none: then nobody may pass it on.
        """
        found = {}
        with tarfile.open(self.tar) as archive:
            members = {each.name: each for each in archive}
            for each in packages:
                folder = f"{rootfs.DOCUMENTS}{each.name}"
                if folder in members and members[folder].issym():
                    folder = f"{rootfs.DOCUMENTS}{members[folder].linkname}"
                file = members.get(f"{folder}/copyright")
                stream = archive.extractfile(file) if file is not None else None
                if stream is None:
                    raise ImageError(f"the package {each.name} has no file with its licence")
                found[each.name] = stream.read().decode("utf-8", "replace")
        return found


def _key() -> str:
    """Hash what the root follows from."""
    digest = hashlib.sha256()
    for path in (debian.SPEC, debian.LOCK, Path(rootfs.__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
