"""The clients of others for encrypted bodies, unmodified: `tinfoil-ehbp` of PyPI, `ehbp` of npm."""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.programs.foreign_packages import Language, foreign_packages, interpreter

__all__ = ["CLIENTS", "ForeignRequest", "foreign_request"]

CLIENTS: tuple[Language, ...] = ("python", "javascript")
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
    client: Language,
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
    pieces
        The body: `python` sends one piece after the other, `javascript` all as one.
    key
        Public key in hexadecimal digits; None = that of the server's key configuration.
    """
    place = foreign_packages(_DATA, client)
    programs: dict[Language, str] = {"python": "python-client", "javascript": "client.mjs"}
    order = {"url": url, "path": path, "pieces": list(pieces), "method": method, "key": key}
    with subprocess.Popen(
        (interpreter(place, client), programs[client]),
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
