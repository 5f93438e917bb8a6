"""A registry that keeps its clients: it responds at once, then sends a byte every 14 seconds."""

import contextlib
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from typing_extensions import override

__all__ = ["SlowRegistry", "slow_registry"]

EVERY = 14.0
"""Seconds between two bytes: each arrives before a client's wait for the next one ends."""


@dataclass
class SlowRegistry:
    """The running server."""

    host: str
    """Host and port."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when its connections end."""
    asked: int = 0
    """How many requests it received."""


class _Handler(socketserver.StreamRequestHandler):
    """Respond to one request, without an end."""

    registry: SlowRegistry

    @override
    def handle(self) -> None:
        """Read the request's header, send that of the response, then one byte at a time."""
        with contextlib.suppress(OSError):
            while self.rfile.readline().strip():
                pass
            self.registry.asked += 1
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n ")
            while not self.registry.stop.wait(EVERY):
                self.wfile.write(b" ")


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


@contextlib.contextmanager
def slow_registry() -> Iterator[SlowRegistry]:
    """Serve on the loopback until the block ends."""

    class Handler(_Handler):
        pass

    with _Server(("127.0.0.1", 0), Handler) as server:
        registry = Handler.registry = SlowRegistry(f"127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005})
        thread.start()
        try:
            yield registry
        finally:
            registry.stop.set()
            server.shutdown()
            thread.join()
