"""Starts, watches and stops the cluster's processes, each known by id and start time.

A process id alone may belong to a stranger after a restart of the machine; with the
boot's id and the start time of ``/proc/PID/stat`` (proc(5)) it cannot.
"""

import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dev.cluster.errors import ClusterError
from dev.cluster.state import Layout

__all__ = ["Component", "alive", "pid_of", "start", "stop", "tail", "up_to_date", "wait_for"]

#: Seconds a process gets between SIGTERM and SIGKILL.
GRACE = 10.0

#: Log lines that an error shows.
SHOWN = 12


@dataclass(frozen=True, slots=True)
class Component:
    """One process of the cluster: how it is started and when it is ready."""

    name: str
    argv: tuple[str, ...]
    #: Whether it serves; asked until it does.
    ready: Callable[[], bool]
    #: Seconds that it may take until it serves.
    within: float = 60.0
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Files that it reads at its start: other content, another process.
    files: tuple[Path, ...] = ()
    #: Address and port pairs that must be free before it starts.
    ports: tuple[tuple[str, int], ...] = ()

    @property
    def fingerprint(self) -> str:
        """Hash of all that the process was started with."""
        digest = hashlib.sha256(repr((self.argv, sorted(self.environment.items()))).encode())
        for path in self.files:
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _started(pid: int) -> int | None:
    """Read the start time of a living process, in clock ticks since boot."""
    try:
        after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # A zombie is dead, only nobody asked yet how it died.
    return None if after[0] in {"Z", "X"} else int(after[19])


def _record(layout: Layout, name: str) -> dict[str, str | int]:
    try:
        content: dict[str, str | int] = json.loads((layout.processes / f"{name}.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return content


def pid_of(layout: Layout, name: str) -> int | None:
    """Find the running process of a component.

    Parameters
    ----------
    layout
        Places of the cluster.
    name
        Name of the component.

    Returns
    -------
    int or None
        Its process id; None when it does not run.
    """
    record = _record(layout, name)
    if not record or record["boot"] != _boot():
        return None
    pid = int(record["pid"])
    return pid if _started(pid) == record["started"] else None


def alive(layout: Layout, name: str) -> bool:
    """Tell whether a component's process runs."""
    return pid_of(layout, name) is not None


def up_to_date(layout: Layout, component: Component) -> bool:
    """Tell whether a component runs as it would be started now."""
    return (
        alive(layout, component.name)
        and _record(layout, component.name).get("fingerprint") == component.fingerprint
    )


def start(layout: Layout, component: Component) -> None:
    """Start a component's process and remember it.

    Parameters
    ----------
    layout
        Places of the cluster.
    component
        What to start.

    Raises
    ------
    ClusterError
        When the process could not be started.
    """
    pid_file = layout.processes / f"{component.name}.pid"
    pid_file.unlink(missing_ok=True)
    with (layout.logs / f"{component.name}.log").open("ab") as log:
        # The shell in between leaves the process to init: it belongs to no program
        # that ends, and the id is on disk before the program itself begins.
        subprocess.run(
            ["setsid", "--fork", "sh", "-c", 'echo $$ > "$0" && exec "$@"', str(pid_file)]
            + list(component.argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=layout.root,
            env={**os.environ, **component.environment},
            check=True,
        )
    pid = _read_pid(pid_file, within=10.0)
    started = _started(pid)
    record = {
        "pid": pid,
        "started": started if started is not None else -1,
        "boot": _boot(),
        "fingerprint": component.fingerprint,
    }
    scratch = layout.processes / f"{component.name}.new"
    scratch.write_text(json.dumps(record))
    scratch.rename(layout.processes / f"{component.name}.json")
    pid_file.unlink()


def _read_pid(path: Path, within: float) -> int:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError, ValueError):
            return int(path.read_text())
        time.sleep(0.01)
    raise ClusterError(f"no process wrote its id to {path} within {within} s")


def wait_for(layout: Layout, component: Component) -> None:
    """Wait until a component serves.

    Parameters
    ----------
    layout
        Places of the cluster.
    component
        The component.

    Raises
    ------
    ClusterError
        When it ended, or does not serve within its time; shows the end of its log.
    """
    deadline = time.monotonic() + component.within
    log = layout.logs / f"{component.name}.log"
    while not component.ready():
        if not alive(layout, component.name):
            raise ClusterError(f"{component.name} ended at its start ({log}):\n{tail(log)}")
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{component.name} does not serve after {component.within:.0f} s ({log}):\n"
                f"{tail(log)}"
            )
        time.sleep(0.1)


def stop(layout: Layout, name: str, grace: float = GRACE) -> None:
    """End a component's process: SIGTERM, after the grace SIGKILL. Strangers stay alive.

    Parameters
    ----------
    layout
        Places of the cluster.
    name
        Name of the component.
    grace
        Seconds between the two signals.
    """
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, GRACE)):
        pid = pid_of(layout, name)
        if pid is None:
            break
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while alive(layout, name) and time.monotonic() < deadline:
            time.sleep(0.02)
    (layout.processes / f"{name}.json").unlink(missing_ok=True)


def tail(log: Path, lines: int = SHOWN) -> str:
    """Read the last lines of a log."""
    if not log.exists():
        return "(no log)"
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 64 * 1024))
        text = file.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"
