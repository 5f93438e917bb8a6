"""The real ``guest gate`` as a process on this machine, for `tests.support.servers.shim`."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cloister_crds.config import Shim
from cloister_operator.enclave.guest_config.certificate import gate_document
from cloister_operator.enclave.guest_config.measurement import unmeasured_document
from cloister_operator.enclave.network.addresses import ApiEndpoint, ClusterNetwork
from cloister_operator.enclave.plan import ApiIdentity
from tests.support.builders.enclave_plans import SETTINGS, WEB, config_of, plan_of
from tests.support.programs.guest_part import RunningPart
from tests.support.programs.measured_guest import write_measured
from tests.support.servers.shim import HOSTNAME

__all__ = ["running_gate"]


@contextlib.contextmanager
def running_gate(
    folder: Path,
    shim: Shim,
    api: str | None,
    *,
    cache_seconds: float = 1,
    domain: str = HOSTNAME,
) -> Iterator[RunningPart]:
    """Run a gate as in an enclave of this file.

    Parameters
    ----------
    folder
        For its document, socket and log; short, since it holds a socket.
    api
        Base address of the API; None = the file requires no keys.
    """
    plan = plan_of(config=config_of(WEB, shim=shim))
    identity = None if api is None else ApiIdentity(api)
    settings = replace(SETTINGS, key_cache_seconds=cache_seconds, api=identity)
    document = gate_document(plan, settings) | {"socket": str(folder / "g")}
    around = ClusterNetwork(api=ApiEndpoint(api or "", ("127.0.0.1",)))
    told = unmeasured_document(plan, around) | {"keyDomain": domain}
    write_measured(folder, {"gate.json": document}, unmeasured=told)
    gate = RunningPart(folder, "gate", folder / "g")
    gate.start()
    try:
        yield gate
    finally:
        gate.kill()
