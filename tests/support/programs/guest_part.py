"""A part of the guest as a process on this machine, which serves the shim on a socket."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.programs.measured_guest import measured_guest
from tests.support.waiting import accepts, until_sync

__all__ = ["RunningPart"]


@dataclass
class RunningPart:
    """A part that can be killed and restarted."""

    folder: Path
    """Folder of its document and log."""
    command: str
    """Command of the guest; its document and its log have this name."""
    socket: Path
    """Its socket."""
    process: "subprocess.Popen[bytes] | None" = None
    """The process while it runs."""

    @property
    def log(self) -> str:
        """Its log."""
        return (self.folder / f"{self.command}.log").read_text()

    def start(self) -> None:
        """Start it and wait until it responds."""
        with (self.folder / f"{self.command}.log").open("ab") as stream:
            self.process = subprocess.Popen(
                [measured_guest(), self.command, "-spec", self.folder / f"{self.command}.json"],
                cwd=self.folder,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        until_sync(self._responds, within=60, what=f"guest {self.command}")

    def _responds(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log
        return accepts(self.socket)

    def kill(self) -> None:
        """Kill it; idempotent."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)
            self.process = None
