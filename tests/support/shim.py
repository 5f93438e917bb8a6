"""The real Caddy with a configuration of ours, in front of a real upstream, on this machine.

Caddy listens on a Unix socket, so that no port has to be guessed; TLS is as in an enclave.
"""

import contextlib
import http.client
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from typing_extensions import override

from cloister_crds.config import Shim
from cloister_operator.enclave.caddy import shim_config
from dev.cluster.binaries import binary
from tests.support.waiting import until_sync

__all__ = ["HOSTNAME", "Answer", "RunningShim", "Upstream", "running_shim"]

HOSTNAME = "web.acme.containers.example"
"""Host name of the enclave."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client got."""

    status: int
    """HTTP status."""
    headers: http.client.HTTPMessage
    """Headers."""
    body: bytes
    """Body."""

    @property
    def data(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """Answer a header; several are joined by commas."""
        values = self.headers.get_all(name)
        return None if values is None else ", ".join(values)


@dataclass
class Upstream:
    """A server that tells what it was asked."""

    headers: dict[str, str] = field(default_factory=dict)
    """Headers that it adds to each answer."""
    go_on: threading.Event = field(default_factory=threading.Event)
    """What a stream waits for after its first event."""
    server: ThreadingHTTPServer | None = None
    """The server while it runs."""

    @property
    def port(self) -> int:
        """Port that it listens on."""
        assert self.server is not None
        return int(self.server.server_address[1])

    def start(self) -> None:
        """Begin to answer on a free port of the loopback."""
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Stop answering and free the port; harmless when done before."""
        self.go_on.set()
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


def _handler(upstream: Upstream) -> type[BaseHTTPRequestHandler]:
    """Make the class that the standard library's server wants."""

    class Handler(BaseHTTPRequestHandler):
        """Answers every request with what it was."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """Answer, stream, or switch protocols."""
            if self.headers.get("Upgrade", "").lower() == "websocket":
                self._echo()
            elif self.path.startswith("/stream"):
                self._stream()
            else:
                self._tell()

        def do_OPTIONS(self) -> None:
            """Answer."""
            self._tell()

        def _tell(self) -> None:
            told = {"method": self.command, "target": self.path, "headers": dict(self.headers)}
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            for name, value in upstream.headers.items():
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
            upstream.go_on.wait(30)
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

    return Handler


@dataclass(frozen=True)
class RunningShim:
    """A shim that answers on a Unix socket."""

    path: Path
    """The socket."""
    upstream: Upstream
    """What it forwards to."""
    agent: Path
    """The agent's directory, with the mark of a completed boot; nobody answers there."""

    def connect(self, hostname: str | None = HOSTNAME) -> ssl.SSLSocket:
        """Open a TLS connection with a host name in the handshake, or (None) without."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(20)
        try:
            plain.connect(str(self.path))
            return context.wrap_socket(plain, server_hostname=hostname)
        except OSError:
            plain.close()
            raise

    def ask(
        self, target: str, *, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request with exactly this target."""
        connection = http.client.HTTPConnection(HOSTNAME)
        with contextlib.closing(self.connect()) as secure:
            connection.sock = secure
            connection.putrequest(method, target, skip_accept_encoding=True)
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())


@contextlib.contextmanager
def running_shim(
    folder: Path, *, storage: str | None = None, within: float = 60, **shim: Any
) -> Iterator[RunningShim]:
    """Run an upstream and a shim in front of it.

    Parameters
    ----------
    folder
        For configuration, keys and log; short, since it holds a socket.
    storage
        Where its certificates are found; None: it signs by itself.
    within
        Seconds that it may take until it shakes hands.
    shim
        Fields of the file's ``shim`` section.
    """
    upstream = Upstream()
    upstream.start()
    spec = Shim.model_validate(
        {"upstream_container": "web", "upstream_port": upstream.port, "paths": ("/*",), **shim}
    )
    agent = folder / "agent"
    agent.mkdir()
    (agent / "booted").touch()
    config = shim_config(spec, [HOSTNAME], storage=storage, agent=str(agent))
    path = folder / "s"
    config["apps"]["http"]["servers"]["shim"]["listen"] = [f"unix/{path}"]
    file = folder / "shim.json"
    file.write_text(json.dumps(config))
    log = folder / "shim.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [binary("caddy"), "run", "--config", str(file)],
            env={"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)},
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
        running = RunningShim(path, upstream, agent)
        try:
            until_sync(lambda: _answers(running, process, log), within=within, what="a shim")
            yield running
        finally:
            process.terminate()
            process.wait(20)
            upstream.stop()


def _answers(shim: RunningShim, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    """Tell whether the shim shakes hands."""
    if process.poll() is not None:
        raise RuntimeError(f"Caddy ended:\n{log.read_text()[-4000:]}")
    try:
        shim.connect().close()
    except OSError:
        return False
    return True
