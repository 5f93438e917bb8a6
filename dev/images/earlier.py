"""An earlier release, rebuilt from its commit: what an upgrade begins with."""

import os
import shutil
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.binaries import cache_folder
from dev.cluster.layout import lock
from dev.cluster.processes import Progress
from dev.images.commands import run
from dev.images.errors import ImageError
from dev.images.release import ROOT

DECLARED = ROOT / "tests" / "install" / "release.toml"
"""Names the release that the tests upgrade from."""
LOCK = "images.lock"
"""The last file that a build puts in its folder."""
OF_THIS_BUILD = ("VIRTUAL_ENV", "PYTHONPATH", "SOURCE_DATE_EPOCH", "REGISTRY")
"""Variables that say something about this checkout and its build."""
PREFIXES = ("MAKE", "MFLAGS", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
"""How further ones of them begin."""


@dataclass(frozen=True, slots=True)
class EarlierRelease:
    """A release of this repository's past.

    Attributes
    ----------
    commit
        All 40 digits.
    """

    version: str
    commit: str

    @classmethod
    def read(cls, path: Path = DECLARED) -> "EarlierRelease":
        """Read which release it is."""
        return cls(**tomllib.loads(path.read_text()))

    @property
    def folder(self) -> Path:
        """Folder of what was built: `images.lock`, `oci`, and the chart."""
        return cache_folder() / "releases" / self.commit

    @property
    def package(self) -> Path:
        """The packaged chart, which has the digests of the images."""
        return self.folder / f"cloister-{self.version}.tgz"

    def rebuild(self, progress: Progress) -> None:
        """Build chart and images by that release's own Makefile, unless they are there.

        Raises
        ------
        ImageError
            When the commit is not in this clone, or its build fails.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with lock(f"release_{self.commit[:8]}"):
            if (self.folder / LOCK).exists():
                return
            progress.say(f"building {self.version} of {self.commit[:12]} once, into {self.folder}")
            with tempfile.TemporaryDirectory(dir=self.folder.parent) as place:
                checkout = Path(place) / "cloister"
                self._check_out(checkout)
                run(["make", "images", "chart"], cwd=checkout, environment=_environment())
                self._keep(checkout / "dist")

    def _check_out(self, checkout: Path) -> None:
        """Clone this repository at the commit; its objects are not copied."""
        try:
            run(["git", "cat-file", "-e", f"{self.commit}^{{commit}}"], cwd=ROOT)
        except ImageError as error:
            raise ImageError(
                f"commit {self.commit} of release {self.version} is not in this clone: "
                "`git fetch --unshallow` brings it"
            ) from error
        run(["git", "clone", "--quiet", "--shared", "--no-checkout", ROOT, checkout])
        run(["git", "checkout", "--quiet", "--detach", self.commit], cwd=checkout)

    def _keep(self, built: Path) -> None:
        """Move what was built into the folder; its lock comes last, and says that all is there."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        for made in (
            built / self.package.name,
            built / "images" / "oci",
            built / "images" / LOCK,
        ):
            if not made.exists():
                raise ImageError(
                    f"the build of {self.commit[:12]} made no {made.name}: "
                    f"is {self.version} its version?"
                )
            made.rename(self.folder / made.name)


def _environment() -> dict[str, str]:
    """Return the environment of a build that belongs to another checkout."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in OF_THIS_BUILD and not name.startswith(PREFIXES)
    }
