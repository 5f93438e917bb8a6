"""Check that this machine can run a cluster, and install missing Debian packages.

Everything is checked before anything is built or started.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from dev.cluster.errors import LocalClusterError
from dev.cluster.layout import PACKAGES, Form, lock, state_folder
from dev.cluster.progress import Progress
from dev.cluster.versions import load

GIB = 1024**3

_PATIENT = ("-o", "DPkg::Lock::Timeout=300")
"""Wait up to 300 s for other installations, such as the system's own upgrades."""

MEMORY = {Form.KIND: 2.0, Form.NODE: 1.5, Form.SIMULATED: 1.0, Form.CONTROL_PLANE: 0.75}
"""Memory that must be available at start, in GiB."""

INOTIFY = {"max_user_instances": 1024, "max_user_watches": 524288}
"""Limits of inotify(7) that several nodes need together."""

STATE_DISK = 1.0
"""Free disk space in GiB: for the state, and for the cache of the first build."""
BUILD_DISK = 12.0


def check_system(form: Form) -> None:
    """Check the operating system and the privileges.

    Raises
    ------
    LocalClusterError
        When the cluster cannot run here.
    """
    if form is not Form.KIND and not sys.platform.startswith("linux"):
        raise LocalClusterError(
            f"the local cluster runs on Linux, and this is {sys.platform}: "
            "start Docker, then run this again"
        )
    if form is Form.NODE and os.geteuid() != 0:
        raise LocalClusterError(
            "a node where Pods really run needs root: run this as root (sudo), "
            "or take --simulated (a node that only pretends) or --control-plane (no node)"
        )


def check_room(form: Form, *, build: bool, cache: Path) -> None:
    """Check memory and disk.

    Parameters
    ----------
    build
        Whether programs must be built first.

    Raises
    ------
    LocalClusterError
        When there is too little of either.
    """
    available = _available_memory() / GIB if sys.platform.startswith("linux") else MEMORY[form]
    if available < MEMORY[form]:
        raise LocalClusterError(
            f"{available:.1f} GiB of memory are available, the {form} cluster needs "
            f"{MEMORY[form]} GiB: end other programs first"
        )
    _check_disk(state_folder(), STATE_DISK, "CLOISTER_STATE")
    if build:
        _check_disk(cache, BUILD_DISK, "CLOISTER_CACHE (and GOCACHE, GOMODCACHE)")


def _available_memory() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise LocalClusterError("/proc/meminfo has no MemAvailable: the kernel is too old")


def _check_disk(folder: Path, needed: float, setting: str) -> None:
    place = folder
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / GIB
    if free < needed:
        raise LocalClusterError(
            f"{free:.1f} GiB are free at {place}, {needed} GiB are needed: "
            f"make room or set {setting} to another disk"
        )


def raise_limits(progress: Progress) -> None:
    """Raise the kernel's inotify limits, which a node, or a second one, would exceed.

    The kubelet watches files and exits with "inotify_init: too many open files" where the machine
    allows one user too few watches (inotify(7)). The limits hold until the next reboot.
    """
    for name, wanted in INOTIFY.items():
        file = Path("/proc/sys/fs/inotify", name)
        if int(file.read_text()) < wanted:
            progress.say(f"raising fs.inotify.{name} to {wanted} until the machine restarts")
            file.write_text(str(wanted))


def debian_mirrors(usual: Mapping[str, str]) -> dict[str, str]:
    """Return the archives of Debian that this machine's apt uses.

    Parameters
    ----------
    usual
        Label of an archive, such as ``Debian-Security`` -> its address where apt names none.
    """
    mirrors = dict(usual)
    if shutil.which("apt-get") is None:
        return mirrors
    asked = ["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        label, _, address = line.partition(" ")
        if label in mirrors and address:
            mirrors[label] = address
    return mirrors


def missing_packages(purposes: Iterable[str]) -> list[str]:
    """List the Debian packages that are missing."""
    # /usr/sbin is not on every user's PATH.
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    lacking = []
    for purpose in purposes:
        for package, sign in load().packages[purpose].items():
            there = Path(sign).exists() if "/" in sign else shutil.which(sign, path=path)
            if not there:
                lacking.append(package)
    return sorted(lacking)


def install_packages(purposes: Iterable[str], progress: Progress) -> None:
    """Install the Debian packages that are missing.

    Raises
    ------
    LocalClusterError
        When packages are missing and cannot be installed; the message names them.
    """
    wanted = list(purposes)
    if not (lacking := missing_packages(wanted)):
        return
    sentence = f"missing Debian packages: {' '.join(lacking)}"
    remedy = f"install them: apt-get install {' '.join(lacking)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise LocalClusterError(
            f"{sentence}; {remedy} (on other systems: the packages with the same programs)"
        )
    # apt-get does not wait for its own lock: the second of two concurrent starts would fail.
    with lock(PACKAGES):
        if lacking := missing_packages(wanted):
            progress.say(f"{sentence}; installing them with apt-get")
            _install(lacking, remedy)
    if still := missing_packages(wanted):
        raise LocalClusterError(f"still missing after apt-get install: {' '.join(still)}")


def _install(packages: list[str], remedy: str) -> None:
    """Install packages; where apt does not know them, update its lists first."""
    install = ["apt-get", "install", *_PATIENT, "-y", "--no-install-recommends", *packages]
    if _quietly(install) is not None:
        _quietly(["apt-get", "update", *_PATIENT])
        failure = _quietly(install)
        if failure is not None:
            raise LocalClusterError(f"apt-get failed: {failure}; {remedy}")


def _quietly(command: list[str]) -> str | None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return None if done.returncode == 0 else done.stderr.strip()[-500:]
