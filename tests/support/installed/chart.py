"""Charts with their images: of this checkout, and of the release before it."""

import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from dev.chart.package import LOCK, package
from dev.cluster import Progress
from dev.images import digests, registry
from dev.images.earlier import EarlierRelease
from dev.images.local import local_images

__all__ = ["Chart", "earlier_chart", "this_chart"]


@dataclass(frozen=True, slots=True)
class Chart:
    """A packaged chart and its images."""

    version: str
    package: Path
    """The package, which has the digests of the images and no registry."""
    images: Path
    """Folder of the images, `oci`, and their digests, `images.lock`."""

    @property
    def digests(self) -> dict[str, str]:
        """Digest of each image, by its name."""
        return digests.read(self.images / LOCK)

    @property
    def has_dashboard(self) -> bool:
        """Whether its values know the dashboard, which 0.2.0 did not have."""
        with tarfile.open(self.package) as packed:
            file = packed.extractfile("cloister/values.schema.json")
            return file is not None and b'"dashboard"' in file.read()

    def push(self, to: str) -> None:
        """Copy the images into a registry, `host/path`."""
        registry.push(self.images / "oci", self.digests, to, self.version)


def this_chart(folder: Path) -> Chart:
    """Package the chart of this checkout into a folder."""
    images = local_images(Progress())
    packaged = package(images.folder / LOCK, folder)
    return Chart(images.release.version, packaged, images.folder)


def earlier_chart() -> Chart:
    """Return the chart of the release that upgrades begin with."""
    release = EarlierRelease.read()
    if not release.package.exists():
        pytest.fail("there is no earlier release: make test-install builds it")
    return Chart(release.version, release.package, release.folder)
