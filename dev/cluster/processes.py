"""Programs that run on after the command that started them, and are stopped by their identity.

A process is known by its id and the moment it started (field 22 of ``/proc/<pid>/stat``), so that a
number that the system gave to somebody else is never signalled.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.trouble import Trouble

__all__ = ["Processes", "port_is_free", "wait_until"]


@dataclass(frozen=True, slots=True)
class _Identity:
    pid: int
    started: int


class Processes:
    """The processes of one installation, recorded in a folder.

    Parameters
    ----------
    folder
        Where the records lie, one file per process.
    logs
        Where their output goes, one file per process.
    """

    def __init__(self, folder: Path, logs: Path) -> None:
        self._folder = folder
        self.logs = logs
        folder.mkdir(parents=True, exist_ok=True)
        logs.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """Answer the names of all that were started, in the order of their start."""
        files = sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
        return [file.stem for file in files]

    def is_running(self, name: str) -> bool:
        """Answer whether the process that was started under a name still runs."""
        identity = self._read(name)
        return identity is not None and _started(identity.pid) == identity.started

    def pid(self, name: str) -> int | None:
        """Answer the id of a running process; None when it does not run."""
        identity = self._read(name)
        return identity.pid if identity and self.is_running(name) else None

    def start(
        self, name: str, command: Sequence[str | Path], *, env: Mapping[str, str] | None = None
    ) -> None:
        """Start a program in a session of its own, unless it runs already.

        Parameters
        ----------
        name
            What it is called here; its log is ``<name>.log``.
        command
            Program and arguments.
        env
            Variables beside those of this process; None = none.
        """
        if self.is_running(name):
            return
        with (self.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
                env={**os.environ, **(env or {})},
            )
        # From here on it is known by its id; the object must not complain that it still runs.
        process.returncode = 0
        record = {"pid": process.pid, "started": _started(process.pid) or 0}
        (self._folder / f"{name}.json").write_text(json.dumps(record))

    def stop(self, name: str, *, grace: float = 10.0) -> None:
        """End a process: ask, wait, kill. Nothing happens when it does not run."""
        identity = self._read(name)
        if identity is not None and _started(identity.pid) == identity.started:
            _signal(identity.pid, signal.SIGTERM)
            gone = wait_until(lambda: _is_gone(identity), within=grace)
            if not gone:
                _signal(identity.pid, signal.SIGKILL)
                wait_until(lambda: _is_gone(identity), within=10)
        (self._folder / f"{name}.json").unlink(missing_ok=True)

    def last_words(self, name: str, lines: int = 12) -> str:
        """Answer the end of a process's log."""
        log = self.logs / f"{name}.log"
        if not log.exists():
            return "(no output)"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])

    def await_ready(self, name: str, question: Callable[[], bool], *, within: float) -> None:
        """Wait until a started process answers.

        Raises
        ------
        Trouble
            When it ended, or did not answer in time; with the last lines of its log.
        """
        deadline = time.monotonic() + within
        while not question():
            if not self.is_running(name):
                raise Trouble(f"{name} ended while it started:\n{self.last_words(name)}")
            if time.monotonic() > deadline:
                raise Trouble(
                    f"{name} was not ready within {within:.0f} s:\n{self.last_words(name)}"
                )
            time.sleep(0.1)

    def _read(self, name: str) -> _Identity | None:
        try:
            record = json.loads((self._folder / f"{name}.json").read_text())
            return _Identity(int(record["pid"]), int(record["started"]))
        except (OSError, ValueError, KeyError):
            return None


def wait_until(question: Callable[[], bool], *, within: float) -> bool:
    """Ask until the answer is yes; answer whether it ever was."""
    deadline = time.monotonic() + within
    while not question():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def port_is_free(port: int) -> bool:
    """Answer whether nobody listens on a port of the loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _started(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def _is_gone(identity: _Identity) -> bool:
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(identity.pid, os.WNOHANG)
    return _started(identity.pid) != identity.started


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
