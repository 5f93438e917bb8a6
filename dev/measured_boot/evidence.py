"""The platform file that a verifier trusts, from files and from a first boot."""

import base64
import hashlib
import json
from pathlib import Path

from dev.measured_boot.kernel import Kernel, as_loaded, authenticode
from dev.measured_boot.machine import COMMAND_LINE, MEMORY

__all__ = ["platform_file", "registers_of"]

_DECIDED = {"4", "9"}
"""Registers that kernel, initial file system and command line decide."""
_ADDED = " initrd=initrd"
"""What OVMF adds to the command line of a kernel that QEMU hands to it."""


def registers_of(document: bytes) -> dict[str, str]:
    """Return the quoted registers of an attestation document, by number."""
    report = json.loads(document)["cpu_evidence"]["report_base64"]
    values = json.loads(base64.b64decode(report))["registers"]
    return {str(number): value for number, value in enumerate(values)}


def platform_file(kernel: Kernel, initrd: Path, document: bytes) -> str:
    """Return the platform file of a machine.

    Parameters
    ----------
    kernel, initrd
        What it is started with: their digests are computed.
    document
        Attestation document of a boot that is trusted: what the firmware measured of itself and of
        the machine's devices is taken from it.
    """
    registers = registers_of(document)
    platform = {
        "format": "https://cloister.dev/measured-boot-platform/v1",
        "command_line": COMMAND_LINE + _ADDED,
        "initrd": hashlib.sha256(initrd.read_bytes()).hexdigest(),
        "kernel": authenticode(
            as_loaded(kernel.image.read_bytes(), initrd_size=initrd.stat().st_size, memory=MEMORY)
        ),
        "registers": {name: value for name, value in registers.items() if name not in _DECIDED},
    }
    return json.dumps(platform, indent=2)
