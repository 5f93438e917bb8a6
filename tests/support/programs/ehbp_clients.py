"""The clients of others for encrypted bodies, unmodified: `tinfoil-ehbp` of PyPI, `ehbp` of npm.

Each has an environment of its own, made once in the cache from pinned hashes.
"""

import contextlib
import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dev.cluster.binaries import cache_folder

__all__ = ["CLIENTS", "ForeignRequest", "foreign_request"]

CLIENTS = ("python", "javascript")
"""Names of the clients."""
_DATA = Path(__file__).parents[2] / "data" / "ehbp"


@dataclass
class ForeignRequest:
    """A request that a client has sent, and what it says of the response."""

    process: "subprocess.Popen[str]"
    """The client's process."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """What it said so far."""

    def next(self) -> dict[str, Any]:
        """Return what it says next: ``status``, ``piece``, ``end`` or ``error``."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the client ended after {self.events}"
        event: dict[str, Any] = json.loads(line)
        self.events.append(event)
        return event

    def send_more(self) -> None:
        """Have it send the next piece of the body."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def response(self) -> tuple[int, str]:
        """Return status and body of the whole response."""
        text = ""
        status = self.next()
        assert "status" in status, status
        while "end" not in (event := self.next()):
            assert "piece" in event, event
            text += event["piece"]
        return status["status"], text


@contextlib.contextmanager
def foreign_request(
    client: str,
    url: str,
    path: str,
    *,
    pieces: Sequence[str] = (),
    method: str = "POST",
    key: str | None = None,
    headers: dict[str, str] | None = None,
) -> Iterator[ForeignRequest]:
    """Send a request with a client.

    Parameters
    ----------
    client
        One of `CLIENTS`.
    url
        Address of the server.
    path
        Path of the request.
    pieces
        The body: `python` sends one piece after the other, `javascript` all as one.
    method
        The method.
    key
        Public key in hexadecimal digits; None = that of the server's key configuration.
    headers
        Further headers.
    """
    place = _environment(client)
    interpreters: dict[str, tuple[str | Path, str]] = {
        "python": (place / "venv" / "bin" / "python", "python-client"),
        "javascript": (shutil.which("node") or "node", "client.mjs"),
    }
    order = {"url": url, "path": path, "pieces": list(pieces), "method": method, "key": key}
    with subprocess.Popen(
        interpreters[client],
        cwd=place,
        # The shim of the tests has a certificate of its own.
        env={"NODE_TLS_REJECT_UNAUTHORIZED": "0", "NODE_NO_WARNINGS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps({**order, "headers": headers or {}}) + "\n")
        process.stdin.flush()
        try:
            yield ForeignRequest(process)
        finally:
            process.kill()


def _environment(client: str) -> Path:
    """Return the folder of a client's environment; make it unless it exists with these pins."""
    digest = hashlib.sha256()
    for file in sorted(_DATA.iterdir()):
        digest.update(file.read_bytes())
    place = cache_folder() / "ehbp-clients" / digest.hexdigest()[:12] / client
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            scratch = place.with_suffix(".new")
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(_DATA, scratch)
            _install(client, scratch)
            scratch.rename(place)
    return place


def _install(client: str, place: Path) -> None:
    """Install the pinned packages; `venv` finds its interpreter wherever it is moved."""
    pip = ("venv/bin/python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    commands: dict[str, list[tuple[str, ...]]] = {
        "python": [
            (sys.executable, "-m", "venv", "venv"),
            (*pip, "--require-hashes", "--only-binary", ":all:", "-r", "requirements.txt"),
        ],
        "javascript": [("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")],
    }
    for command in commands[client]:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
