"""A machine with a measured boot for the tests of this folder."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.cluster import LocalClusterError, Progress
from dev.cluster.requirements import install_packages
from dev.measured_boot.documents import Documents
from dev.measured_boot.errors import MachineError
from dev.measured_boot.kernel import find_kernel
from dev.measured_boot.machine import Machine
from dev.measured_boot.workshop import Workshop


@pytest.fixture(scope="session")
def workshop() -> Iterator[Workshop]:
    """Build what machines have in common; where that cannot be had, skip and say so."""
    try:
        install_packages(["measured-boot", "tpm"], Progress())
        find_kernel()
    except (LocalClusterError, MachineError) as error:
        pytest.skip(str(error))
    # pytest's folders have paths that are too long for sockets.
    with tempfile.TemporaryDirectory(prefix="boot-") as folder:
        yield Workshop(Path(folder))


@pytest.fixture(scope="session")
def documents() -> Documents:
    """Return the documents of the enclave in the machine."""
    return Documents.make()


@pytest.fixture
def machine(workshop: Workshop, documents: Documents) -> Iterator[Machine]:
    """Boot the machine that the platform file is of."""
    with workshop.boot(documents) as machine:
        machine.await_boot()
        workshop.trust(machine)
        yield machine
