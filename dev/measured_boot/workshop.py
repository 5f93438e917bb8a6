"""All that machines of one kind have in common: kernel, initial file system, TPM, platform file."""

import itertools
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dev.cluster.guest import guest_binary
from dev.measured_boot.documents import Documents
from dev.measured_boot.evidence import platform_file
from dev.measured_boot.initial_files import initial_files
from dev.measured_boot.kernel import find_kernel
from dev.measured_boot.machine import BootFiles, Machine, booted
from dev.measured_boot.tpm import Tpm

__all__ = ["ATTESTATION", "MEASURED_BOOT", "STAGES", "Workshop"]

ATTESTATION = "/.well-known/cloister-attestation"
"""Path of the attestation document."""
STAGES = "/.well-known/cloister-boot-stages"
"""Path of the stages of the boot."""
MEASURED_BOOT = 15
"""Exit code of ``cloister-verify`` for a measured boot that is as expected."""


class Workshop:
    """Makes and verifies machines, in a folder whose path is short (for sockets)."""

    def __init__(self, folder: Path) -> None:
        """Build what all machines have in common.

        Parameters
        ----------
        folder
            An empty folder.
        """
        self.folder = folder
        """Folder of everything."""
        self.kernel = find_kernel()
        """The kernel."""
        self.initrd = folder / "initrd"
        """The initial file system."""
        self.initrd.write_bytes(initial_files(self.kernel))
        self.tpm = Tpm(folder)
        """The TPM of the machines, which boot one after the other."""
        self.root = folder / "root.pem"
        """Certificates of the authority that certified it."""
        self.root.write_text(self.tpm.authorities)
        self.platform = folder / "platform.json"
        """The platform file, once `trust` has written it."""
        self._numbers = itertools.count()

    @contextmanager
    def boot(
        self, documents: Documents, *, measurement: str = "", initrd: Path | None = None
    ) -> Iterator[Machine]:
        """Boot a machine, and switch it off at the end.

        Parameters
        ----------
        documents
            What the host carries in.
        measurement
            Digest that the command line names; empty = that of the documents.
        initrd
            Another initial file system.
        """
        number = next(self._numbers)
        archive = self.folder / f"{number}.tar"
        archive.write_bytes(documents.archive())
        files = BootFiles(
            self.kernel.image,
            initrd or self.initrd,
            archive,
            f"sha256:{measurement or documents.digest}",
        )
        with booted(self.tpm, files, self.folder / str(number)) as machine:
            yield machine

    def trust(self, machine: Machine) -> None:
        """Write the platform file by a machine that runs what this workshop has built."""
        document = machine.get(ATTESTATION)
        self.platform.write_text(platform_file(self.kernel, self.initrd, document))

    def verify(self, machine: Machine, measurement: str, *more: str) -> tuple[int, dict[str, Any]]:
        """Verify a machine by ``cloister-verify``; return its exit code and its verdict.

        Parameters
        ----------
        machine
            The machine.
        measurement
            Digest of the measurement document that is expected.
        more
            Further options.
        """
        command = self.verify_command(machine, measurement, *more)
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout or "{}")

    def verify_command(self, machine: Machine, measurement: str, *more: str) -> list[str]:
        """Return the command that verifies a machine."""
        return [
            str(guest_binary("cloister-verify", "./cmd/cloister-verify")),
            f"127.0.0.1:{machine.port}",
            *("--measurement", f"sha256:{measurement}"),
            *("--measured-boot", str(self.platform), "--insecure-tpm-root", str(self.root)),
            *more,
        ]
