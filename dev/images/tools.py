"""The programs that images are made with: Debian packages, and runc as the cluster builds it."""

import os
import platform
import re
from pathlib import Path

from dev.cluster.binaries import binary, cache_folder, missing
from dev.cluster.processes import Progress
from dev.cluster.requirements import install_packages
from dev.images.errors import ImageError
from dev.images.release import ROOT

PURPOSE = "images"
"""Their part of `dev/cluster/versions.toml`."""
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def architecture() -> str:
    """Return the architecture of this machine.

    Raises
    ------
    ImageError
        When no base is made for it.
    """
    machine = platform.machine()
    if machine not in MACHINES:
        raise ImageError(f"images are built on {' or '.join(MACHINES)}, and this is {machine}")
    return MACHINES[machine]


def uv() -> Path:
    """Return the program uv of the Makefile's version, which `make venv` sets up.

    Raises
    ------
    ImageError
        When it is not there.
    """
    version = re.search(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert version is not None
    path = cache_folder() / f"uv-{version[1]}" / "bin" / "uv"
    if not path.exists():
        raise ImageError(f"{path} is missing: `make venv` sets it up, with the same CLOISTER_CACHE")
    return path


def prepare(progress: Progress) -> None:
    """Install and build the programs that are missing.

    Raises
    ------
    ImageError
        When this is not root.
    LocalClusterError
        When packages are missing and cannot be installed; the message names them.
    """
    if os.geteuid() != 0:
        raise ImageError("buildah and mmdebstrap need root here: run this as root (sudo)")
    install_packages([PURPOSE], progress)
    if missing(["runc"]):
        install_packages(["build", "node-build"], progress)
        binary("runc")
