"""Background processes that outlive the command that started them, and are stopped by identity.

A process id alone may belong to another program after a reboot; with the start time it is unique.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TextIO

from dev.cluster.layout import LocalClusterError, port_is_free

LINE_EVERY = 15.0
"""Seconds between two lines where the output is not a terminal."""


class Progress:
    """A status line on a terminal; elsewhere a plain line now and then.

    Parameters
    ----------
    stream
        Where it writes; None is stderr.
    """

    def __init__(self, *, stream: TextIO | None = None, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._live = self._stream.isatty()
        self._last = 0.0
        self._open = False

    def say(self, text: str) -> None:
        """Write a permanent line."""
        if self._quiet:
            return
        self._end_status()
        print(text, file=self._stream, flush=True)

    def step(self, what: str, done: int, total: int, since: float) -> None:
        """Show the progress of a step.

        Parameters
        ----------
        done, total
            Progress in the unit that ``what`` names; a total of 0 = show no numbers.
        since
            ``time.monotonic()`` at its start.
        """
        now = time.monotonic()
        if self._quiet or now - self._last < (0.2 if self._live else LINE_EVERY):
            return
        self._last = now
        counts = f" {min(done, total)}/{total}" if total else ""
        text = f"{what}{counts}, {duration(now - since)}"
        if self._live:
            print(f"\r\x1b[K{text}", end="", file=self._stream, flush=True)
            self._open = True
        else:
            print(text, file=self._stream, flush=True)

    def _end_status(self) -> None:
        if self._open:
            print("\r\x1b[K", end="", file=self._stream)
            self._open = False


def duration(seconds: float) -> str:
    """Format a duration: ``8 s``, ``2 min 05 s``."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02} s"  # noqa: PLR2004 - seconds of a minute


AND_TELL = 'echo $$ > "$0" && exec "$@"'
"""Writes the shell's own process id and becomes the program."""

SHOWN = 12
"""Log lines in an error message."""


class Processes:
    """The processes of one installation, recorded in a folder."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self._folder = folder
        self.logs = logs
        folder.mkdir(parents=True, exist_ok=True)
        logs.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """List what was started and not stopped, in start order."""
        files = sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
        return [file.stem for file in files]

    def pid(self, name: str) -> int | None:
        """Find a running process.

        Returns
        -------
        int or None
            Its process id; None when it does not run.
        """
        record = self._record(name)
        if not record or record["boot"] != _boot():
            return None
        pid = int(record["pid"])
        return pid if _started(pid) == record["started"] else None

    def is_running(self, name: str) -> bool:
        """Return whether the process that was started under a name is still running."""
        return self.pid(name) is not None

    def is_current(self, name: str, mark: str) -> bool:
        """Return whether a process runs that was started with the same `fingerprint`."""
        return self.is_running(name) and self._record(name).get("mark") == mark

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        mark: str = "",
    ) -> None:
        """Start a program in a session of its own, unless it is already running.

        Parameters
        ----------
        name
            What it is called here; its log is ``<name>.log``.
        env
            Environment variables in addition to those of this process; None = none.
        mark
            Kept for `is_current`.

        Raises
        ------
        LocalClusterError
            When the process could not be started.
        """
        if self.is_running(name):
            return
        pid_file = self._folder / f"{name}.pid"
        pid_file.unlink(missing_ok=True)
        arguments = [str(part) for part in command]
        with (self.logs / f"{name}.log").open("ab") as log:
            # The shell in between leaves the process to init: it has no parent
            # that exits, and the id is on disk before the program itself starts.
            subprocess.run(
                ["setsid", "--fork", "sh", "-c", AND_TELL, str(pid_file), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={**os.environ, **(env or {})},
                check=True,
            )
        pid = _read_pid(pid_file)
        record = {"pid": pid, "started": _started(pid) or 0, "boot": _boot(), "mark": mark}
        scratch = self._folder / f"{name}.new"
        scratch.write_text(json.dumps(record))
        scratch.rename(self._folder / f"{name}.json")
        pid_file.unlink()

    def stop(self, name: str, *, grace: float = 10.0) -> None:
        """Terminate a process: SIGTERM, a grace period, SIGKILL. A no-op when it is not running.

        Parameters
        ----------
        grace
            Seconds between SIGTERM and SIGKILL.
        """
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 60.0)):
            pid = self.pid(name)
            if pid is None:
                break
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            wait_until(lambda: not self.is_running(name), within=seconds)
        (self._folder / f"{name}.json").unlink(missing_ok=True)

    def log_tail(self, name: str, lines: int = SHOWN) -> str:
        """Return the last lines of a process's log."""
        log = self.logs / f"{name}.log"
        if not log.exists():
            return "(no log)"
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 256 * 1024))
            text = file.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"

    def await_ready(self, name: str, ready: Callable[[], bool], *, within: float) -> None:
        """Wait until a started process is ready.

        Parameters
        ----------
        within
            Timeout in seconds.

        Raises
        ------
        LocalClusterError
            When it exited, or was not ready in time; with the last lines of its log.
        """
        deadline = time.monotonic() + within
        while not ready():
            place = self.logs / f"{name}.log"
            if not self.is_running(name):
                raise LocalClusterError(
                    f"{name} exited while starting ({place}):\n{self.log_tail(name)}"
                )
            if time.monotonic() > deadline:
                raise LocalClusterError(
                    f"{name} is not ready after {within:.0f} s ({place}):\n{self.log_tail(name)}"
                )
            time.sleep(0.1)

    def _record(self, name: str) -> dict[str, str | int]:
        try:
            content = json.loads((self._folder / f"{name}.json").read_text())
        except (FileNotFoundError, ValueError):
            return {}
        whole = isinstance(content, dict) and {"pid", "started", "boot"} <= content.keys()
        return content if whole else {}


def fingerprint(command: Sequence[str], env: Mapping[str, str], files: Sequence[Path] = ()) -> str:
    """Hash everything that a process is started with."""
    digest = hashlib.sha256(repr((list(command), sorted(env.items()))).encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def wait_until(condition: Callable[[], bool], *, within: float, every: float = 0.05) -> bool:
    """Poll a condition until it holds.

    Parameters
    ----------
    within
        Timeout in seconds.
    every
        Seconds between two looks.

    Returns
    -------
    bool
        Whether it held before the timeout.
    """
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _started(pid: int) -> int | None:
    """Return the start time of a running process, in clock ticks since boot."""
    try:
        after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # A zombie has exited; only its parent has not waited for it yet.
    return None if after[0] in {"Z", "X"} else int(after[19])


def _read_pid(path: Path, within: float = 60.0) -> int:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError, ValueError):
            return int(path.read_text())
        time.sleep(0.01)
    raise LocalClusterError(f"no process wrote its id to {path} within {within:.0f} s")


PATIENCE = 60.0
"""Seconds that a port may take to become free."""


@dataclass(frozen=True, slots=True)
class Component:
    """One process of the cluster."""

    name: str
    argv: tuple[str, ...]
    ready: Callable[[], bool]
    """Readiness probe; polled until it returns True."""
    within: float = 90.0
    """Seconds that it may take to become ready."""
    environment: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    """Files that it reads at start; when their content changes, the process is restarted."""
    ports: tuple[tuple[str, int], ...] = ()
    """Address and port pairs that must be free before it starts."""

    @property
    def mark(self) -> str:
        """Hash of everything that the process is started with."""
        return fingerprint(self.argv, self.environment, self.files)


def start(processes: Processes, component: Component) -> bool:
    """Start a component that does not run, or runs with other settings; wait until it is ready.

    Raises
    ------
    LocalClusterError
        When its port is taken, it exits, or is not ready in time.
    """
    current = processes.is_current(component.name, component.mark)
    if not current:
        processes.stop(component.name)
        for address, port in component.ports:
            # The threads of a process that was just stopped may keep the port for a moment.
            if not wait_until(partial(port_is_free, address, port), within=PATIENCE):
                raise LocalClusterError(
                    f"{component.name} needs the port {port} of {address}, but another program "
                    "listens on it: stop that program, or take the cluster down and up again "
                    "(it then chooses other ports)"
                )
        processes.start(
            component.name, component.argv, env=component.environment, mark=component.mark
        )
    processes.await_ready(component.name, component.ready, within=component.within)
    return not current


def write_config(path: Path, text: str) -> Path:
    """Write a configuration file unless it already has this content, and return its path.

    Some components exit when their file is written, even with the same content.
    """
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f"{path.name}.new")
        scratch.write_text(text)
        scratch.rename(path)
    return path
