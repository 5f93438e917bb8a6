"""What this machine must have before a cluster can run on it, and how it is told."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.trouble import Trouble

__all__ = ["PACKAGES", "Package", "choose_kind", "docker_answers", "missing", "provide"]

NEEDED_MEMORY_MB = 2048


@dataclass(frozen=True, slots=True)
class Package:
    """A Debian package and how to see that it is there."""

    name: str
    """Name of the package."""
    proof: str
    """A program on the path, or a file."""


PACKAGES = (
    Package("git", "git"),
    Package("iproute2", "ip"),
    Package("iptables", "iptables"),
    Package("nftables", "nft"),
    Package("conntrack", "conntrack"),
    Package("gcc", "gcc"),
    Package("libseccomp-dev", "/usr/include/seccomp.h"),
    Package("busybox-static", "/bin/busybox"),
)
"""What a real node needs beside what is built from Go modules."""


def docker_answers() -> bool:
    """Answer whether a Docker engine answers within three seconds."""
    if shutil.which("docker") is None:
        return False
    try:
        done = subprocess.run(["docker", "info"], check=False, capture_output=True, timeout=3)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def choose_kind(*, platform: str, root: bool, docker: bool) -> str:
    """Decide which cluster this machine can run.

    Returns
    -------
    str
        ``kind``, ``node`` (real programs on this machine) or ``simulated``.
    """
    if docker:
        return "kind"
    if platform == "linux" and root:
        return "node"
    return "simulated"


def missing(found: Callable[[str], bool]) -> list[str]:
    """Answer the names of packages that are not there.

    Parameters
    ----------
    found
        Whether a program or file exists.
    """
    return [package.name for package in PACKAGES if not found(package.proof)]


def provide(say: Callable[[str], None]) -> None:
    """Install what a real node needs and this machine lacks.

    Raises
    ------
    Trouble
        When something is missing and cannot be installed, or memory is short.
    """
    _check_memory()
    names = missing(lambda proof: bool(shutil.which(proof)) or Path(proof).exists())
    if not names:
        return
    wish = f"apt-get install {' '.join(names)}"
    if shutil.which("apt-get") is None:
        raise Trouble(f"these packages are missing (Debian's names): {' '.join(names)}")
    say(f"installing Debian packages: {' '.join(names)}\n")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *names]
    for command in (["apt-get", "update"], install):
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        if done.returncode:
            words = "\n".join(done.stderr.strip().splitlines()[-5:])
            raise Trouble(f"`{wish}` did not work; run it by hand and try again:\n{words}")


def _check_memory() -> None:
    if sys.platform != "linux":
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1024 * 1024)
    if memory < NEEDED_MEMORY_MB:
        raise Trouble(f"this machine has {memory} MB of memory; a node needs {NEEDED_MEMORY_MB} MB")
