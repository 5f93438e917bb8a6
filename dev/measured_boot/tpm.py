"""The machine's TPM: swtpm, manufactured with a local authority that certifies its keys."""

import shutil
import subprocess
from pathlib import Path

from dev.cluster.guest import guest_binary
from dev.cluster.processes import wait_until
from dev.measured_boot.errors import MachineError

__all__ = ["Tpm"]

_START = 20.0
"""Seconds within which swtpm listens, or ends."""
_CERTIFICATES = ("swtpm-localca-rootca-cert.pem", "issuercert.pem")


class Tpm:
    """A TPM that is manufactured once, and then started for each boot of a machine."""

    def __init__(self, folder: Path) -> None:
        """Manufacture it.

        Parameters
        ----------
        folder
            Folder for its state and its authority; its path must be short, for sockets.
        """
        self._folder = folder
        self._state, self._authority = folder / "tpm", folder / "authority"
        for each in (self._state, self._authority):
            each.mkdir(mode=0o700)
        place = self._authority
        settings = {
            "localca.conf": f"statedir = {place}\nsigningkey = {place}/signkey.pem\n"
            f"issuercert = {place}/issuercert.pem\ncertserial = {place}/certserial\n",
            "localca.options": "--platform-manufacturer QEMU\n--platform-version 1\n"
            "--platform-model measured-machine\n",
            "setup.conf": "create_certs_tool = swtpm_localca\n"
            f"create_certs_tool_config = {place}/localca.conf\n"
            f"create_certs_tool_options = {place}/localca.options\n",
        }
        for name, text in settings.items():
            (place / name).write_text(text)
        setup = ["swtpm_setup", "--tpm2", "--tpmstate", str(self._state), "--create-ek-cert"]
        setup += ["--pcr-banks", "sha256", "--config", str(place / "setup.conf")]
        _run(setup)
        self._enrol()

    @property
    def authorities(self) -> str:
        """Certificates of the local authority, in PEM."""
        return "".join((self._authority / each).read_text() for each in _CERTIFICATES)

    def _enrol(self) -> None:
        """Have the authority certify the attestation key."""
        socket = self._folder / "tpm.sock"
        command = ["--server", f"type=unixio,path={socket}"]
        process = self._start(*command, "--flags", "not-need-init,startup-clear")
        try:
            _await(socket, process)
            program = guest_binary("measured-machine", "./cmd/measured-machine")
            address, authority = f"tpm+unix://{socket}", str(self._authority)
            _run([str(program), "enrol", "-tpm", address, "-authority", authority])
        finally:
            process.terminate()
            process.wait(timeout=_START)

    def start(self, socket: Path) -> subprocess.Popen[bytes]:
        """Start it for QEMU, which connects to its control channel; it ends with the machine."""
        process = self._start("--ctrl", f"type=unixio,path={socket}", "--terminate")
        _await(socket, process)
        return process

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = ["swtpm", "socket", "--tpm2", "--tpmstate", f"dir={self._state}", *arguments]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def remove(self) -> None:
        """Remove its state and its authority."""
        for each in (self._state, self._authority):
            shutil.rmtree(each, ignore_errors=True)


def _await(socket: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until swtpm listens at its socket: connecting would disturb it."""
    wait_until(lambda: _listens(socket) or process.poll() is not None, within=_START)
    if process.poll() is not None or not _listens(socket):
        raise MachineError("swtpm did not start: see whether another one uses its state")


def _listens(socket: Path) -> bool:
    """Return whether a program listens at a socket: a flag of it says so (proc(5), net/unix)."""
    lines = (line.split() for line in Path("/proc/net/unix").read_text().splitlines())
    return any(words[3] == "00010000" and words[-1] == str(socket) for words in lines)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineError(f"{command[0]}: {(done.stderr or done.stdout).strip()[-1000:]}")
