"""The container behind a shim: a server that echoes its requests."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

__all__ = ["BLOCK", "Upstream"]

BLOCK = 1 << 20
"""Chunk size of large bodies, in bytes."""


@dataclass
class Upstream:
    """A server that echoes its requests."""

    headers: dict[str, str] = field(default_factory=dict)
    """Additional headers of each response."""
    go_on: threading.Event = field(default_factory=threading.Event)
    """Event that a stream waits for after its first event."""
    received: int = 0
    """Received bytes of the body of the current or last POST."""
    cut: int = 0
    """Number of bodies in chunks that ended early."""
    targets: list[str] = field(default_factory=list)
    """Targets of all requests that reached it, in order."""
    server: ThreadingHTTPServer | None = None
    """The server while it runs."""

    @property
    def port(self) -> int:
        """Port that it listens on."""
        assert self.server is not None
        return int(self.server.server_address[1])

    def start(self) -> None:
        """Start listening on a free port of the loopback."""
        handler = type("Handler", (_Handler,), {"upstream": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Stop and free the port; idempotent."""
        self.go_on.set()
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


class _Handler(BaseHTTPRequestHandler):
    """Echo every request."""

    protocol_version = "HTTP/1.1"
    upstream: Upstream

    @override
    def parse_request(self) -> bool:
        """Record the target."""
        read = super().parse_request()
        if read:
            self.upstream.targets.append(self.path)
        return read

    def do_GET(self) -> None:
        """Respond, stream, or switch protocols."""
        if self.headers.get("Upgrade", "").lower() == "websocket":
            self._echo()
        elif self.path.startswith("/stream"):
            self._stream()
        elif self.path.startswith("/many/"):
            self._many()
        elif self.path.startswith("/cut"):
            self._cut()
        else:
            self._send_echo()

    def _cut(self) -> None:
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")

    def do_OPTIONS(self) -> None:
        """Respond to one request."""
        self._send_echo()

    def do_POST(self) -> None:
        """Read and count the body, then echo the request, or the body, or stream."""
        self.upstream.received = 0
        kept = bytearray()
        try:
            for piece in self._pieces():
                self.upstream.received += len(piece)
                kept += piece if self.path == "/echo" else b""
        except ConnectionError:
            self.upstream.cut += 1
            self.close_connection = True
            return
        if self.path == "/echo":
            self._send(bytes(kept))
        elif self.path == "/stream":
            self._stream()
        elif self.path == "/cut":
            self._cut()
        else:
            self._send_echo()

    def _pieces(self) -> Iterator[bytes]:
        """Read the body piece by piece, in chunks or by its length."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self._size(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length", 0))
        while left:
            piece = self.rfile.read1(min(left, BLOCK))
            if not piece:
                return
            left -= len(piece)
            yield piece

    def _size(self) -> bytes:
        """Read the size of a chunk."""
        line = self.rfile.readline()
        if not line:
            raise ConnectionAbortedError("the body was cut")
        return line

    def _many(self) -> None:
        """Send as many bytes as the path's last part says."""
        left = int(self.path.rsplit("/", 1)[1])
        self.send_response(200)
        self.send_header("Content-Length", str(left))
        self.end_headers()
        while left:
            left -= self.wfile.write(bytes(min(left, BLOCK)))

    def _send_echo(self) -> None:
        reported = {
            "method": self.command,
            "target": self.path,
            "headers": dict(self.headers),
            "received": self.upstream.received,
        }
        self._send(json.dumps(reported).encode())

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        for name, value in self.upstream.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"data: first\n\n")
        self.wfile.flush()
        self.upstream.go_on.wait(30)
        self.wfile.write(b"data: second\n\n")
        self.close_connection = True

    def _echo(self) -> None:
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.end_headers()
        self.wfile.write(self.rfile.read(4))
        self.close_connection = True

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
