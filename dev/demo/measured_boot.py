"""A measured boot beside the demo's enclave, where this machine has what it needs."""

import tempfile
from pathlib import Path

from dev.cluster.requirements import missing_packages
from dev.measured_boot.documents import Documents
from dev.measured_boot.kernel import has_kernel
from dev.measured_boot.workshop import ATTESTATION, Workshop

__all__ = ["REFUSED", "missing_for_boot", "verify_boot"]

REFUSED = 26
"""Exit code for another measurement than the expected one, as docs/verify.md says."""


def missing_for_boot() -> list[str]:
    """List what this machine lacks for a measured boot; the demo installs and fetches nothing."""
    lacking = missing_packages(["measured-boot", "tpm"])
    return lacking if has_kernel() else [*lacking, "a kernel"]


def verify_boot() -> tuple[list[str], int, int]:
    """Boot a machine and verify it, with the measurement that it has and with another one.

    Returns
    -------
    tuple
        The steps of the first verification in words, its exit code, and that of the second.

    Raises
    ------
    LocalClusterError
        When a program cannot be built.
    MachineError
        When the machine does not start, or gives no evidence.
    """
    documents = Documents.make()
    # The paths of sockets have to be short.
    with tempfile.TemporaryDirectory(prefix="boot-") as folder:
        workshop = Workshop(Path(folder))
        with workshop.boot(documents) as machine:
            machine.await_response(ATTESTATION)
            workshop.trust(machine)
            code, verdict = workshop.verify(machine, documents.digest)
            other, _ = workshop.verify(machine, "0" * 64)
    steps = [f"{each['result']:8} {each['step']}: {each['compared']}" for each in verdict["steps"]]
    return steps, code, other
