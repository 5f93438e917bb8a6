"""The real ``guest gate`` as a process on this machine, for `tests.support.servers.shim`."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from cloister_crds.config import Shim
from cloister_operator.enclave.guest_config.key_gate import gate_document
from cloister_operator.enclave.guest_config.unmeasured import unmeasured_document
from cloister_operator.enclave.network.cluster_network import ApiEndpoint, ClusterNetwork
from cloister_operator.enclave.plan import ApiIdentity
from tests.support.builders.enclave_plans import SETTINGS, WEB, config_of, plan_of
from tests.support.programs.measured_guest import measured_guest, write_measured
from tests.support.servers.shim import HOSTNAME
from tests.support.waiting import accepts, until_sync

__all__ = ["RunningGate", "running_gate"]


@dataclass
class RunningGate:
    """A gate that can be killed and restarted."""

    folder: Path
    """Folder of its document, socket and log."""
    process: "subprocess.Popen[bytes] | None" = None
    """The process while it runs."""

    @property
    def socket(self) -> Path:
        """Its socket."""
        return self.folder / "g"

    @property
    def log(self) -> str:
        """Its log."""
        return (self.folder / "gate.log").read_text()

    def start(self) -> None:
        """Start it and wait until it responds."""
        with (self.folder / "gate.log").open("ab") as stream:
            self.process = subprocess.Popen(
                [measured_guest(), "gate", "-spec", self.folder / "gate.json"],
                cwd=self.folder,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        until_sync(self._answers, within=60, what="a gate")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log
        return accepts(self.socket)

    def kill(self) -> None:
        """Kill it; idempotent."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)
            self.process = None


@contextlib.contextmanager
def running_gate(
    folder: Path,
    shim: Shim,
    api: str | None,
    *,
    cache_seconds: float = 1,
    domain: str = HOSTNAME,
) -> Iterator[RunningGate]:
    """Run a gate as in an enclave of this file.

    Parameters
    ----------
    folder
        For its document, socket and log; short, since it holds a socket.
    shim
        The shim of the file.
    api
        Base address of the API; None = the file requires no keys.
    cache_seconds
        The operator's setting.
    domain
        Public host name of the enclave.
    """
    plan = plan_of(config=config_of(WEB, shim=shim))
    identity = None if api is None else ApiIdentity(api)
    settings = replace(SETTINGS, key_cache_seconds=cache_seconds, api=identity)
    document = gate_document(plan, settings) | {"socket": str(folder / "g")}
    around = ClusterNetwork(api=ApiEndpoint(api or "", ("127.0.0.1",)))
    told = unmeasured_document(plan, around) | {"keyDomain": domain}
    write_measured(folder, {"gate.json": document}, unmeasured=told)
    gate = RunningGate(folder)
    gate.start()
    try:
        yield gate
    finally:
        gate.kill()
