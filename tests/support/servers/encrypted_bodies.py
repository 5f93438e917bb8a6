"""The real ``guest ehbp`` as a process on this machine, for `tests.support.servers.shim`."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cloister_operator.enclave.guest_config.unmeasured import unmeasured_document
from cloister_operator.enclave.shim.encrypted_bodies import bodies_document
from tests.support.builders.enclave_plans import SURROUNDINGS, WEB, config_of, plan_of
from tests.support.programs.measured_guest import measured_guest, write_measured
from tests.support.servers.shim import RunningShim
from tests.support.waiting import accepts, until_sync

__all__ = ["RunningBodies", "running_bodies"]


@dataclass
class RunningBodies:
    """The part that decrypts bodies; it can be killed and restarted."""

    folder: Path
    """Folder of its document, socket, keys and log."""
    process: "subprocess.Popen[bytes] | None" = None
    """The process while it runs."""

    @property
    def public_key(self) -> str:
        """The public key that it published for attestation."""
        return (self.folder / "e" / "hpke.pub").read_text().strip()

    @property
    def log(self) -> str:
        """Its log."""
        return (self.folder / "ehbp.log").read_text()

    def start(self) -> None:
        """Start it and wait until it responds."""
        with (self.folder / "ehbp.log").open("ab") as stream:
            self.process = subprocess.Popen(
                [measured_guest(), "ehbp", "-spec", self.folder / "ehbp.json"],
                cwd=self.folder,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        until_sync(self._answers, within=60, what="encrypted bodies")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log
        return accepts(self.folder / "e" / "ehbp.sock")

    def kill(self) -> None:
        """Kill it; idempotent."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)
            self.process = None


@contextlib.contextmanager
def running_bodies(folder: Path, shim: RunningShim) -> Iterator[RunningBodies]:
    """Run it as in an enclave of the shim's file.

    Parameters
    ----------
    folder
        The shim's folder; short, since it holds sockets.
    shim
        The shim that passes requests to it.
    """
    plan = plan_of(config=config_of(WEB, shim=shim.spec))
    places = {"directory": folder / "e", "keyDirectory": folder / "k"}
    for place in places.values():
        place.mkdir()
    document = bodies_document(plan) | {
        **{name: str(place) for name, place in places.items()},
        "upstream": f"127.0.0.1:{shim.upstream.port}",
    }
    told = unmeasured_document(plan, SURROUNDINGS)
    write_measured(folder, {"ehbp.json": document}, unmeasured=told)
    bodies = RunningBodies(folder)
    bodies.start()
    try:
        yield bodies
    finally:
        bodies.kill()
