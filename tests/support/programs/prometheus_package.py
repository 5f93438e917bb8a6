"""The programs prometheus and promtool: Debian's, from the package ``prometheus``.

The package is unpacked, not installed, since its installation starts a server.
"""

import fcntl
import shutil
import subprocess
from pathlib import Path

from dev.cluster.binaries import cache_folder

__all__ = ["PACKAGE", "find_program"]

PACKAGE = "prometheus"
"""Debian package that has the programs."""


def find_program(name: str) -> Path | None:
    """Return a program, from the path or unpacked; None = it cannot be had here.

    Parameters
    ----------
    name
        ``prometheus``, the server, or ``promtool``, which checks and tests alerts.
    """
    found = shutil.which(name)
    if found:
        return Path(found)
    folder = cache_folder() / "promtool"
    program = folder / "usr" / "bin" / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _unpack(folder)
    return program if program.exists() else None


def _unpack(folder: Path) -> None:
    """Unpack the package into a folder, where apt has it."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return
    subprocess.run(
        ["apt-get", "download", "-q", PACKAGE], cwd=folder, capture_output=True, check=False
    )
    for package in folder.glob(f"{PACKAGE}_*.deb"):
        subprocess.run(["dpkg", "-x", package, folder], capture_output=True, check=False)
        package.unlink()
