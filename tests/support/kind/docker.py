"""Docker's daemon (Debian's package) with all that it owns in one folder and one network namespace.

Its networks, rules of iptables and mounts end with the namespaces that it lives in; its processes,
files and control groups are removed by their names.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dev.cluster import LocalClusterError
from dev.cluster.kind import docker
from dev.cluster.layout import Layout, layout
from dev.cluster.node import cgroup_root, may_raise_limits
from dev.cluster.processes import Processes
from dev.cluster.requirements import clear_files, clear_node, make_cgroups
from tests.support.installed.alone import alone
from tests.support.kind import runtime

__all__ = ["docker_daemon", "traces"]

DAEMON = "dockerd"
KEY = Path("/etc/docker/key.json")
"""Docker 20 writes it, wherever its other files are."""
PRIVATE_RUN = 'mount -t tmpfs none /run && exec "$0" "$@"'
"""Docker and its containerd have folders in /run that no flag moves."""


@contextmanager
def docker_daemon(name: str) -> Iterator[None]:
    """Run a daemon that this process and its children find, and leave this machine's network.

    Raises
    ------
    LocalClusterError
        When it does not start; with the end of its log.
    """
    places, before = layout(name), os.environ.get("DOCKER_HOST")
    foreign = KEY.exists()
    places.make()
    processes = Processes(places.processes, places.logs)
    with alone():
        try:
            make_cgroups(cgroup_root(name))
            os.environ["DOCKER_HOST"] = f"unix://{places.sockets / 'docker.sock'}"
            processes.start(DAEMON, _command(places))
            processes.await_ready(DAEMON, docker.answers, within=60)
            yield
        finally:
            if before is None:
                del os.environ["DOCKER_HOST"]
            else:
                os.environ["DOCKER_HOST"] = before
            processes.stop(DAEMON, grace=60)
            clear_node(places, cgroup_root(name))
            clear_files(places)
            if not foreign:
                KEY.unlink(missing_ok=True)
                with suppress(OSError):
                    KEY.parent.rmdir()


def traces(name: str) -> set[str]:
    """Return what there is of a daemon: processes, mounts, control groups, folders."""
    folder = str(layout(name).folder)
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            commands.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    groups = Path("/sys/fs/cgroup").glob(f"**{cgroup_root(name)}")
    return {
        *(each for each in (*commands, *mounts) if f"{folder}/" in each),
        *map(str, groups),
        *(each for each in (folder, "/run/docker", str(KEY)) if Path(each).exists()),
    }


def _command(places: Layout) -> list[str]:
    """Return the command of the daemon, in a mount namespace of its own."""
    program = shutil.which(DAEMON, path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise LocalClusterError(f"{DAEMON} is missing: install Debian's package docker.io")
    command = [
        *("unshare", "--mount", "sh", "-c", PRIVATE_RUN),
        *(program, "--host", os.environ["DOCKER_HOST"]),
        *("--data-root", str(places.data), "--exec-root", str(places.sockets / "exec")),
        *("--pidfile", str(places.sockets / "docker.pid")),
        *("--cgroup-parent", cgroup_root(places.name)),
        *("--exec-opt", "native.cgroupdriver=cgroupfs"),
    ]
    if not may_raise_limits():
        bounded = places.config / "runtime"
        text = Path(runtime.__file__).read_text()
        bounded.write_text(text.replace("/usr/bin/env python3", sys.executable, 1))
        bounded.chmod(0o755)
        command += ["--add-runtime", f"bounded={bounded}", "--default-runtime", "bounded"]
    return command
