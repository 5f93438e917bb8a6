"""A stand-in for the API's key check (``POST /api/shim/validate-key``) on a socket.

It gives each answer that the contract knows, and what may go wrong: slow, broken, gone.
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
    """A key check whose answers a test sets."""

    served: HttpServer | None = None
    """The server."""
    running: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Ends it."""
    answers: dict[str, Reply] = field(default_factory=dict)
    """Verdicts by key; a key that is not here is unknown (401)."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Bodies that came, in order."""
    broken: bool = False
    """Whether it answers 500 to everything."""
    go_on: threading.Event = field(default_factory=threading.Event)
    """What answers wait for; it is set unless a test makes the check slow."""

    def __post_init__(self) -> None:
        """Begin as a fast one."""
        self.go_on.set()

    @property
    def base(self) -> str:
        """Its base address."""
        assert self.served is not None
        return self.served.base

    def stop(self) -> None:
        """Go away: connections are refused from now on. Harmless when done before."""
        self.go_on.set()
        self.running.close()

    def times(self, key: str) -> int:
        """Count how often it was asked for a key."""
        return sum(body["api_key"] == key for body in self.asked)

    def answer(self, request: Request) -> Reply:
        """Return one question, each on a connection of its own, so that `stop` is felt at once."""
        if (request.method, request.path) != ("POST", "/api/shim/validate-key"):
            return Reply(404)
        body = json.loads(request.body)
        self.asked.append(body)
        self.go_on.wait(60)
        if self.broken:
            return Reply(500, b"<html>it broke</html>")
        reply = self.answers.get(body["api_key"], Reply(401))
        return Reply(reply.status, reply.body, {**reply.headers, "Connection": "close"})


@contextlib.contextmanager
def running_key_check(
    answers: Mapping[str, Reply],
    *,
    tls: ssl.SSLContext | None = None,
    address: str = "127.0.0.1",
) -> Iterator[KeyCheck]:
    """Return on a free port until the block ends.

    Parameters
    ----------
    answers
        Answers by key.
    tls
        Context of a TLS server; None: plain HTTP.
    address
        Address of this machine to listen on.
    """
    check = KeyCheck(answers=dict(answers))
    check.served = check.running.enter_context(serve(check.answer, tls=tls, address=address))
    try:
        yield check
    finally:
        check.stop()
