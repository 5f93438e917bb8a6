"""Check that this machine can run a cluster, install missing Debian packages, clean up afterwards.

Everything is checked before anything is built or started. Cleaning up works on the observed state,
not on records: Pods, mounts, control groups and sockets that processes of a node left behind.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from dev.cluster.binaries import load
from dev.cluster.layout import PACKAGES, Form, Layout, LocalClusterError, lock, state_folder
from dev.cluster.processes import Progress

CGROUPS = Path("/sys/fs/cgroup")
WEIGHTS = {"cpu.shares": "16384", "cpu.weight": "1600"}
"""Weight of the Pods of all clusters in cgroup v1 and v2: that of sixteen processes."""


def clear_node(layout: Layout, cgroup: str) -> None:
    """Kill all Pods of a cluster and unmount everything below its folder.

    Parameters
    ----------
    layout
        Paths of the cluster; its own processes have exited.
    """
    sockets = list(_shim_sockets(layout))
    _end(_shims(layout))
    _end(_members(cgroup))
    for mount in reversed(mounts_below(layout.folder)):
        subprocess.run(["umount", "-l", mount], capture_output=True, check=False)
    _remove_cgroups(cgroup)
    for socket in sockets:
        socket.unlink(missing_ok=True)
    for record in Path("/var/lib/cni/results").glob(f"cloister-{layout.name}-*"):
        record.unlink(missing_ok=True)
    _remove_links(layout)


def clear_files(layout: Layout) -> None:
    """Remove a cluster's folder.

    Raises
    ------
    LocalClusterError
        When something is still mounted in it, whose content would be removed too.
    """
    still = mounts_below(layout.folder)
    if still:
        raise LocalClusterError(f"still mounted: {', '.join(still)}; unmount it and run down again")
    shutil.rmtree(layout.folder, ignore_errors=True)


def mounts_below(folder: Path) -> list[str]:
    """List the mounts below a folder, in the order of mounting (proc_pid_mountinfo(5))."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place = line.split()[4].encode().decode("unicode_escape")
        if place.startswith(f"{folder}/"):
            found.append(place)
    return found


def _commands() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                yield int(entry.name), words


def _shims(layout: Layout) -> list[int]:
    """List the shim processes of containerd, which outlive it."""
    address = str(layout.sockets / "containerd.sock")
    return [
        pid
        for pid, words in _commands()
        if Path(words[0]).name.startswith("containerd-shim") and address in words
    ]


def _shim_sockets(layout: Layout) -> Iterator[Path]:
    tasks = layout.sockets / "containerd" / "io.containerd.runtime.v2.task"
    for file in tasks.glob("*/*/bootstrap.json"):
        with suppress(OSError, ValueError, KeyError):
            yield Path(json.loads(file.read_text())["address"].removeprefix("unix://"))


def _cgroup_folders(cgroup: str) -> list[Path]:
    """List a control group's folder in each hierarchy; a single one with cgroup v2."""
    roots = [CGROUPS] if (CGROUPS / "cgroup.controllers").exists() else list(CGROUPS.iterdir())
    return [root / cgroup.lstrip("/") for root in roots if root.is_dir() and not root.is_symlink()]


def _members(cgroup: str) -> list[int]:
    found: set[int] = set()
    for folder in _cgroup_folders(cgroup):
        for file in folder.rglob("cgroup.procs"):
            with suppress(OSError):
                found.update(int(line) for line in file.read_text().split())
    return sorted(found)


def _end(pids: list[int], within: float = 60.0) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + within
    while time.monotonic() < deadline and any(_runs(pid) for pid in pids):
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in {"Z", "X"}


def make_cgroups(cgroup: str) -> None:
    """Create the control group that holds all Pods; the kubelet requires it.

    The Pods of all clusters together would otherwise have as much of the CPU as one process beside
    them, such as one compiler.
    """
    for folder in _cgroup_folders(cgroup):
        parents = [folder, *folder.parents]
        for part in reversed(parents[: parents.index(CGROUPS)]):
            if part.exists():
                continue
            part.mkdir()
            for name in ("cpuset.cpus", "cpuset.mems"):
                # A new cpuset of cgroup v1 has no cpus and accepts no process.
                source, target = part.parent / name, part / name
                if source.exists() and target.exists() and not target.read_text().strip():
                    target.write_text(source.read_text())
        for name, weight in WEIGHTS.items():
            of_all = folder.parent / name
            if of_all.exists():
                of_all.write_text(weight)


def _remove_cgroups(cgroup: str, within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        left = [folder for folder in _cgroup_folders(cgroup) if folder.exists()]
        if not left:
            break
        for top in left:
            for folder in sorted(top.rglob("*/"), key=lambda path: -len(path.parts)):
                with suppress(OSError):
                    folder.rmdir()
            with suppress(OSError):
                top.rmdir()
        time.sleep(0.05)
    for folder in _cgroup_folders(str(Path(cgroup).parent)):
        # The folder of all clusters is removed with the last of them.
        with suppress(OSError):
            folder.rmdir()


def _remove_links(layout: Layout) -> None:
    """Remove the links that the kubelet puts into a folder shared by all clusters."""
    folder = Path("/var/log/containers")
    if folder.is_dir():
        for link in folder.iterdir():
            if link.is_symlink() and str(layout.folder) in str(link.readlink()):
                link.unlink(missing_ok=True)


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
