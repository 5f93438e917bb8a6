"""The kernel of the machine: Debian's for virtual machines, unpacked and not installed."""

import fcntl
import hashlib
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.binaries import cache_folder
from dev.measured_boot.errors import MachineError

__all__ = ["MODULES", "Kernel", "as_loaded", "authenticode", "find_kernel", "has_kernel"]

_META = "linux-image-cloud-amd64"
"""Package that depends on the newest kernel."""
MODULES = (
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
    "drivers/firmware/qemu_fw_cfg.ko",
)
"""Modules that the machine loads, in this order: the network card, and what the host carries in."""

_ACPI_TABLES = 0x28000
"""Bytes at the end of the memory that QEMU keeps for tables."""


@dataclass(frozen=True)
class Kernel:
    """A kernel.

    Attributes
    ----------
    image
        The kernel, a program of EFI.
    modules
        Folder of its modules.
    """

    image: Path
    modules: Path


def find_kernel() -> Kernel:
    """Return the kernel that Debian has now; download and unpack it where it is missing.

    Raises
    ------
    MachineError
        When apt does not have it.
    """
    depends = _output("apt-cache", "depends", _META)
    found = re.search(r"Depends: (linux-image-[0-9]\S+-cloud-amd64)$", depends, re.MULTILINE)
    if found is None:
        raise MachineError(f"apt knows no {_META}: run apt-get update, or use Debian on amd64")
    folder = _folder() / found[1]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "boot").exists():
            _unpack(found[1], folder)
    image, modules = (sorted(folder.glob(each)) for each in ("boot/vmlinuz-*", "lib/modules/*"))
    return Kernel(image[0], modules[0] / "kernel")


def has_kernel() -> bool:
    """Return whether a kernel was unpacked before."""
    return any(_folder().glob("*/boot/vmlinuz-*"))


def _folder() -> Path:
    return cache_folder() / "measured-boot"


def _unpack(package: str, folder: Path) -> None:
    _output("apt-get", "download", "-q", package, folder=folder)
    [file] = folder.glob("*.deb")
    unpacked = folder / "unpacked"
    _output("dpkg-deb", "-x", str(file), str(unpacked))
    (unpacked / "lib").rename(folder / "lib")
    (unpacked / "boot").rename(folder / "boot")
    file.unlink()


def _output(*command: str, folder: Path | None = None) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    except FileNotFoundError:
        raise MachineError(f"{command[0]} is missing: use Debian") from None
    if done.returncode:
        raise MachineError(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
    return done.stdout


def as_loaded(kernel: bytes, *, initrd_size: int, memory: int) -> bytes:
    """Return a kernel as QEMU hands it to the firmware, which measures it so.

    Parameters
    ----------
    kernel
        The kernel's file. QEMU fills in fields of its header in which a boot loader describes
        itself ("The Linux/x86 Boot Protocol"), also where the firmware does not use them.
    initrd_size
        Bytes of the initial file system.
    memory
        Bytes of the machine's memory, less than 2 GiB.
    """
    place = (memory - _ACPI_TABLES - 1 - initrd_size) & ~0xFFF
    loaded = bytearray(kernel)
    loaded[0x210] = 0xB0  # type_of_loader: QEMU
    loaded[0x211] |= 0x80  # loadflags: the heap can be used
    for offset, size, value in (
        (0x218, 4, place),  # ramdisk_image
        (0x21C, 4, initrd_size),  # ramdisk_size
        (0x224, 2, 0xFE00),  # heap_end_ptr
        (0x228, 4, 0x20000),  # cmd_line_ptr
    ):
        loaded[offset : offset + size] = value.to_bytes(size, "little")
    return bytes(loaded)


def authenticode(program: bytes) -> str:
    """Return the SHA-256 that firmware measures of a program of EFI, in hexadecimal digits.

    Parameters
    ----------
    program
        Its bytes (Microsoft, "Windows Authenticode Portable Executable Signature Format"): all but
        the checksum, the place of the signature, and the signature.
    """
    header = int.from_bytes(program[0x3C:0x40], "little")
    optional = header + 24
    is_64 = program[optional : optional + 2] == b"\x0b\x02"
    checksum = optional + 64
    directory = optional + (112 if is_64 else 96) + 4 * 8
    signature, length = (
        int.from_bytes(program[at : at + 4], "little") for at in (directory, directory + 4)
    )
    end = signature if length else len(program)
    hashed = program[:checksum] + program[checksum + 4 : directory] + program[directory + 8 : end]
    if length:
        hashed += program[end + length :]
    return hashlib.sha256(hashed + b"\0" * (-len(program) % 8)).hexdigest()
