"""A small HTTP server on the loopback with a handler function, the base of the stand-ins."""

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote

from typing_extensions import override

__all__ = ["HttpServer", "Reply", "Request", "serve"]


@dataclass(frozen=True)
class Request:
    """A received request."""

    method: str
    """Method."""
    path: str
    """Raw path, percent-encoded, without the query."""
    query: str
    """Raw query."""
    headers: dict[str, str]
    """Headers, names in lower case."""
    body: bytes
    """Body."""

    @property
    def parts(self) -> list[str]:
        """The parts of the path, decoded."""
        return [unquote(part) for part in self.path.strip("/").split("/")]

    @property
    def parameters(self) -> dict[str, list[str]]:
        """The parameters of the query."""
        return parse_qs(self.query)


@dataclass(frozen=True)
class Reply:
    """A response."""

    status: int = 200
    """Status."""
    body: bytes = b""
    """Body."""
    headers: dict[str, str] = field(default_factory=dict)
    """Headers other than Content-Length."""


@dataclass
class HttpServer:
    """A running server."""

    port: int
    """Port on the loopback."""
    scheme: str
    """http or https."""
    requests: list[Request] = field(default_factory=list)
    """Received requests, in order."""

    @property
    def host(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def base(self) -> str:
        """Its address."""
        return f"{self.scheme}://{self.host}"


class _Handler(BaseHTTPRequestHandler):
    """Pass requests to the handler function."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two packets; do not delay the second
    served: HttpServer
    respond: Callable[[Request], Reply]

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    @override
    def handle(self) -> None:
        """Serve a connection; the client may disconnect at any time."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):
            super().handle()

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        headers = {key.lower(): value for key, value in self.headers.items()}
        request = Request(self.command, path, query, headers, self._body())
        self.served.requests.append(request)
        reply = type(self).respond(request)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(reply.status)
            for key, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body)

    do_GET = do_POST = do_HEAD = do_PUT = _answer  # noqa: N815 - names that the library calls

    def _body(self) -> bytes:
        """Read the request's body, in one piece or in chunks."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body


@contextlib.contextmanager
def serve(
    respond: Callable[[Request], Reply],
    *,
    tls: ssl.SSLContext | None = None,
    address: str = "127.0.0.1",
    port: int = 0,
) -> Iterator[HttpServer]:
    """Serve requests with a handler function until the block ends.

    Parameters
    ----------
    respond
        The handler; it is called from several threads.
    tls
        SSL context; None = plain HTTP.
    address
        Address of this machine to listen on, by default the loopback's.
    port
        Port; 0 = a free one.
    """

    class Handler(_Handler):
        pass

    listener = ThreadingHTTPServer((address, port), Handler)
    if tls is not None:
        listener.socket = tls.wrap_socket(listener.socket, server_side=True)
    served = HttpServer(listener.server_address[1], "http" if tls is None else "https")
    Handler.served = served
    Handler.respond = staticmethod(respond)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.005})
    thread.start()
    try:
        yield served
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
