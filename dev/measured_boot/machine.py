"""One boot of the machine: QEMU without hardware virtualization, OVMF as firmware, a TPM."""

import json
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.processes import wait_until
from dev.measured_boot.errors import MachineError
from dev.measured_boot.tpm import Tpm

__all__ = ["COMMAND_LINE", "MEMORY", "BootFiles", "Machine", "booted"]

_FIRMWARE = Path("/usr/share/OVMF/OVMF_CODE_4M.fd")
_VARIABLES = Path("/usr/share/OVMF/OVMF_VARS_4M.fd")
COMMAND_LINE = "console=ttyS0 panic=-1 quiet cloister.measurement={measurement}"
"""The kernel's command line, with the place of the measurement's digest."""
MEMORY = 512 << 20
"""Bytes of the machine's memory."""
_BOOT = 180.0
"""Seconds within which the machine responds; a loaded one takes long."""
_END = 30.0
_STAGES = "/.well-known/cloister-boot-stages"
_REQUEST = 10.0


@dataclass(frozen=True)
class BootFiles:
    """What a machine is started with.

    Attributes
    ----------
    kernel, initrd
        The kernel, and its initial file system.
    documents
        What the host carries in, a tar archive.
    measurement
        What the command line names, such as ``sha256:…``.
    """

    kernel: Path
    initrd: Path
    documents: Path
    measurement: str


class Machine:
    """A running machine."""

    def __init__(self, process: subprocess.Popen[bytes], console: Path, port: int) -> None:
        """Take over a started process.

        Parameters
        ----------
        process
            QEMU.
        console
            File with what the machine writes to its serial port.
        port
            Port on the loopback that leads to the machine's TLS server.
        """
        self._process = process
        self._console = console
        self.port = port
        """Port on the loopback that leads to the machine's TLS server."""

    @property
    def console(self) -> str:
        """What the machine has written."""
        return self._console.read_text(errors="replace") if self._console.exists() else ""

    def get(self, path: str) -> bytes:
        """Return the response to a GET; evidence binds the key, so no certificate is verified."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        address = f"https://127.0.0.1:{self.port}{path}"
        with urllib.request.urlopen(address, timeout=_REQUEST, context=context) as response:
            return bytes(response.read())

    def await_response(self, path: str) -> float:
        """Wait until a path responds; return the seconds that it took.

        Raises
        ------
        MachineError
            When the machine ends before, or takes too long.
        """
        start = time.monotonic()
        responded = wait_until(lambda: self._has_ended() or self._responds(path), within=_BOOT)
        if not responded or self._has_ended():
            raise MachineError(f"the machine did not come up; its console:\n{self.console[-3000:]}")
        return time.monotonic() - start

    def await_boot(self) -> None:
        """Wait until the enclave has booted: the container then has every other path.

        Raises
        ------
        MachineError
            When the machine ends before, or takes too long.
        """
        self.await_response(_STAGES)
        done = wait_until(lambda: self._has_ended() or self._has_booted(), within=_BOOT)
        if not done or self._has_ended():
            raise MachineError(f"the enclave did not boot; its console:\n{self.console[-3000:]}")

    def stop(self) -> None:
        """Switch it off."""
        self._process.terminate()
        self._process.wait(timeout=_END)

    def await_end(self) -> None:
        """Wait until the machine has switched itself off."""
        self._process.wait(timeout=_BOOT)

    def _has_booted(self) -> bool:
        """Return whether the stages say so, and the container listens."""
        return bool(json.loads(self.get(_STAGES))["completed_at"]) and self._responds("/")

    def _responds(self, path: str) -> bool:
        try:
            self.get(path)
        except (urllib.error.URLError, OSError):
            return False
        return True

    def _has_ended(self) -> bool:
        return self._process.poll() is not None


@contextmanager
def booted(tpm: Tpm, files: BootFiles, folder: Path) -> Iterator[Machine]:
    """Boot a machine, and switch it off at the end.

    Parameters
    ----------
    tpm
        Its TPM.
    files
        What it is started with.
    folder
        A new folder for its state; its path must be short, for sockets.
    """
    folder.mkdir()
    variables, control, console = folder / "vars.fd", folder / "ctl", folder / "console"
    shutil.copyfile(_VARIABLES, variables)
    module = tpm.start(control)
    port = _free_port()
    command = _command(files, variables, control, console, port)
    with (folder / "qemu").open("wb") as messages:
        process = subprocess.Popen(command, stdout=messages, stderr=messages)
    try:
        yield Machine(process, console, port)
    finally:
        for each in (process, module):
            each.terminate()
            each.wait(timeout=_END)


def _command(
    files: BootFiles, variables: Path, control: Path, console: Path, port: int
) -> list[str]:
    """Return QEMU's command; with other devices or memory the firmware measures other values."""
    line = COMMAND_LINE.format(measurement=files.measurement)
    return [
        *("qemu-system-x86_64", "-machine", "q35,accel=tcg,smm=off", "-cpu", "max"),
        *("-m", str(MEMORY >> 20)),
        *("-smp", "1", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-monitor", "none", "-serial", f"file:{console}"),
        *("-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={_FIRMWARE}"),
        *("-drive", f"if=pflash,format=raw,unit=1,file={variables}"),
        *("-kernel", str(files.kernel), "-initrd", str(files.initrd), "-append", line),
        *("-fw_cfg", f"name=opt/dev.cloister.documents,file={files.documents}"),
        *("-chardev", f"socket,id=tpm,path={control}"),
        *("-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-crb,tpmdev=tpm0"),
        *("-netdev", f"user,id=net0,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:8443"),
        *("-device", "virtio-net-pci,netdev=net0,romfile="),
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
