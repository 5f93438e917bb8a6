"""Remove what the processes of a node leave behind: Pods, mounts, control groups, sockets.

It works on the observed state, not on records, so that it also cleans up
after a kill -9 of everything, an interrupted run or a reboot. It touches
only what carries the cluster's own folder or name.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dev.cluster.errors import LocalClusterError
from dev.cluster.layout import Layout

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
