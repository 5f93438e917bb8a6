"""Makes of the chart what is handed on: a package, and one manifest for those without Helm."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from dev.chart.documents import namespace_text
from dev.chart.helm import Helm
from dev.images.release import Release

CHART: Final = Path(__file__).resolve().parents[2] / "charts" / "cloister"
LOCK: Final = "images.lock"
"""Name of the file with digests of images, which `make images` writes, and in the chart."""


def package(images: Path, output: Path, release: Release | None = None) -> Path:
    """Package the chart, and return the file.

    Parameters
    ----------
    images
        Digests of the images; where there is no such file, the package knows none.
    release
        Which version it is, and when it was made; the same gives the same bytes. None = that of
        pyproject.toml, made now.

    Raises
    ------
    LocalClusterError
        When Helm cannot be built, or refuses.
    """
    with _chart(images, release) as chart:
        said = Helm(chart.parent).output("package", chart, "--destination", output)
    return Path(said.strip().rpartition(": ")[2])


def manifest(images: Path, values: Path, namespace: str, release: Release | None = None) -> str:
    """Render the chart without hooks: applied by hand, the check of an uninstall would run.

    Parameters
    ----------
    images
        Digests of the images, as for `package`.
    release
        As for `package`.

    Raises
    ------
    LocalClusterError
        When Helm cannot be built, or the chart refuses the values.
    """
    with _chart(images, release) as chart:
        helm = Helm(chart.parent, namespace=namespace)
        rendered = helm.output(
            *("template", helm.release, chart, "--no-hooks"), "--values", values.resolve()
        )
    return namespace_text(namespace) + rendered


@contextmanager
def _chart(images: Path, release: Release | None) -> Iterator[Path]:
    """Provide the chart with the digests of its images, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / CHART.name
        shutil.copytree(CHART, chart)
        if images.exists():
            shutil.copy(images, chart / LOCK)
        if release is not None:
            _stamp(chart, release)
        yield chart


def _stamp(chart: Path, release: Release) -> None:
    """Write version and addresses into Chart.yaml, and give each file the time of the release."""
    path = chart / "Chart.yaml"
    described = yaml.safe_load(path.read_text(encoding="utf-8"))
    described |= {"version": release.version, "appVersion": release.version}
    if release.source:
        described |= {"home": release.source, "sources": [release.source]}
    if "-" in release.version:
        described["annotations"]["artifacthub.io/prerelease"] = "true"
    path.write_text(yaml.safe_dump(described, sort_keys=False), encoding="utf-8")
    for path in chart.rglob("*"):
        os.utime(path, (release.time, release.time))
