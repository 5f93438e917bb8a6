"""Which commit the images are of."""

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from dev.images.commands import run

ROOT = Path(__file__).resolve().parents[2]
"""Root of the repository."""
AUTHORS = "The Cloister authors"


@dataclass(frozen=True, slots=True)
class Release:
    """A version of the project."""

    version: str
    """Version of pyproject.toml; of a pre-release with its mark, such as ``0.3.0-rc.1``."""
    revision: str
    """Commit; with ``-dirty`` when the checkout differs from it."""
    time: int
    """Time of every file of ours, in seconds of Unix time: the commit's."""

    source: str = ""
    """Public address of the repository; empty = it is not known."""

    def labels(self, title: str, description: str) -> dict[str, str]:
        """Return the labels of an image (OCI image specification, "Annotations").

        An image holds files under many licences, so that no label names one. Their texts are in
        it, and its bill of materials names them.
        """
        found = {
            "title": title,
            "description": description,
            "vendor": AUTHORS,
            "revision": self.revision,
            "version": self.version,
        }
        if self.source:
            found |= dict.fromkeys(("url", "source", "documentation"), self.source)
        return {f"org.opencontainers.image.{name}": text for name, text in sorted(found.items())}


def project_version() -> str:
    """Return the version in pyproject.toml, the one place that has it."""
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return found


def current(source: str = "") -> Release:
    """Return the version of the checkout. ``$SOURCE_DATE_EPOCH`` replaces the commit's time.

    Parameters
    ----------
    source
        As of `Release`.

    Raises
    ------
    ImageError
        When this is no checkout.
    """
    described = ["git", "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty"]
    revision = run(described, cwd=ROOT).decode().strip()
    committed = run(["git", "log", "-1", "--format=%ct"], cwd=ROOT).decode().strip()
    time = int(os.environ.get("SOURCE_DATE_EPOCH") or committed)
    return Release(project_version(), revision, time, source.rstrip("/"))
