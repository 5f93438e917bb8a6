"""A stand-in for the API's key check (``POST /api/shim/validate-key``) on a socket.

It returns each response of the contract, and simulates failures: slow, broken, unavailable.
"""

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.stand_ins.http_server import HttpServer, Reply, Request, serve

__all__ = ["KeyCheck", "running_key_check"]


@dataclass
class KeyCheck:
    """A key check whose responses a test sets."""

    served: HttpServer | None = None
    """The server."""
    running: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Stops it."""
    responses: dict[str, Reply] = field(default_factory=dict)
    """Key -> response; other keys are unknown (401)."""
    received: list[dict[str, Any]] = field(default_factory=list)
    """Received bodies, in order."""
    broken: bool = False
    """Whether it returns 500 for every request."""
    go_on: threading.Event = field(default_factory=threading.Event)
    """Event that responses wait for; a test clears it to make the check slow."""

    def __post_init__(self) -> None:
        """Start without delay."""
        self.go_on.set()

    @property
    def base(self) -> str:
        """Its base address."""
        assert self.served is not None
        return self.served.base

    def stop(self) -> None:
        """Refuse connections from now on; idempotent."""
        self.go_on.set()
        self.running.close()

    def times(self, key: str) -> int:
        """Return the number of checks of a key."""
        return sum(body["api_key"] == key for body in self.received)

    def respond(self, request: Request) -> Reply:
        """Return the response to a check; no keep-alive, so that `stop` has effect at once."""
        if (request.method, request.path) != ("POST", "/api/shim/validate-key"):
            return Reply(404)
        body = json.loads(request.body)
        self.received.append(body)
        self.go_on.wait(60)
        if self.broken:
            return Reply(500, b"<html>it broke</html>")
        reply = self.responses.get(body["api_key"], Reply(401))
        return Reply(reply.status, reply.body, {**reply.headers, "Connection": "close"})


@contextlib.contextmanager
def running_key_check(
    responses: Mapping[str, Reply],
    *,
    tls: ssl.SSLContext | None = None,
    address: str = "127.0.0.1",
) -> Iterator[KeyCheck]:
    """Run a key check on a free port until the block ends.

    Parameters
    ----------
    tls
        SSL context; None = plain HTTP.
    """
    check = KeyCheck(responses=dict(responses))
    check.served = check.running.enter_context(serve(check.respond, tls=tls, address=address))
    try:
        yield check
    finally:
        check.stop()
