"""Loads the images of the checkout into a cluster of kind, for which no registry is needed.

`kind load` alone would leave them without the digests that the chart and the operator name images
by. The archive therefore names each of them by its digest too.
"""

import tempfile
from pathlib import Path
from typing import Final

from dev.chart.package import LOCK, package
from dev.cluster.binaries import binary
from dev.cluster.images import Archive
from dev.cluster.kind import load
from dev.images import digests
from dev.images.local import LocalImages

REGISTRY: Final = "localhost/cloister"
"""What loaded images are called by; nothing listens there, so nothing is pulled from it."""


def load_images(images: LocalImages, cluster: str, folder: Path) -> Path:
    """Load images into the nodes of a cluster, and return the chart packaged with their digests.

    Raises
    ------
    LocalClusterError
        When kind or Helm cannot be built, or refuses.
    """
    version = images.release.version
    references = {
        name: (f"{REGISTRY}/{name}:{version}", f"{REGISTRY}/{name}@{digest}")
        for name, digest in images.digests.items()
    }
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch, "images.tar")
        Archive.copy(archive, images.folder / "oci", references)
        load(cluster, binary("kind"), archive)
        lock = Path(scratch, LOCK)
        digests.write(lock, images.release, images.digests, REGISTRY)
        return package(lock, folder)
