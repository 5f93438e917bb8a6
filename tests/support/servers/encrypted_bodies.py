"""The real ``guest ehbp`` as a process on this machine, for `tests.support.servers.shim`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from cloister_operator.enclave.guest_config.measurement import unmeasured_document
from cloister_operator.enclave.shim.encrypted_bodies import bodies_document
from tests.support.builders.enclave_plans import SURROUNDINGS, WEB, config_of, plan_of
from tests.support.programs.guest_part import RunningPart
from tests.support.programs.measured_guest import write_measured
from tests.support.servers.shim import RunningShim

__all__ = ["RunningBodies", "running_bodies"]


class RunningBodies(RunningPart):
    """The part that decrypts bodies."""

    @property
    def public_key(self) -> str:
        """The public key that it published for attestation."""
        return self.socket.with_name("hpke.pub").read_text().strip()


@contextlib.contextmanager
def running_bodies(folder: Path, shim: RunningShim) -> Iterator[RunningBodies]:
    """Run it as in an enclave of the shim's file.

    Parameters
    ----------
    folder
        The shim's folder; short, since it holds sockets.
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
    bodies = RunningBodies(folder, "ehbp", folder / "e" / "ehbp.sock")
    bodies.start()
    try:
        yield bodies
    finally:
        bodies.kill()
