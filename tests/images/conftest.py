"""The images of this checkout, built once."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from dev.cluster import LocalClusterError, Progress
from dev.cluster.requirements import install_packages
from dev.images import digests, release, tools
from dev.images.build import Build
from dev.images.errors import ImageError
from tests.support.programs.image_container import ImageContainer

Unpack = Callable[[str, str], ImageContainer]


@pytest.fixture(scope="session")
def uv() -> Path:
    return tools.uv()


@pytest.fixture(scope="session", autouse=True)
def programs() -> None:
    """Have what images are built with; where that cannot be, skip and say what is missing."""
    try:
        tools.prepare(Progress())
        install_packages(["emulation"], Progress())
    except (ImageError, LocalClusterError) as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def built(programs: None, uv: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return the images of all architectures, with their `images.lock`."""
    target = tmp_path_factory.mktemp("images")
    build = Build(target, uv, release.current(), Progress())
    digests.write(target / "images.lock", build.release, build.run(), "")
    return build


@pytest.fixture(scope="session")
def unpack(built: Build, tmp_path_factory: pytest.TempPathFactory) -> Unpack:
    """Unpack an image of an architecture, each once."""

    @cache
    def one(name: str, architecture: str) -> ImageContainer:
        folder = tmp_path_factory.mktemp(f"{name}-{architecture}")
        emulated = architecture != tools.architecture()
        return ImageContainer.unpack(built.layout, name, architecture, folder, emulated=emulated)

    return one
