"""The real shim in front of a real upstream, on this machine.

It listens on a Unix socket and on a port that is passed to it as a socket; TLS is as in an enclave.
"""

import contextlib
import http.client
import json
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloister_crds.config import Shim
from cloister_operator.enclave.guest_config.measurement import unmeasured_document
from cloister_operator.enclave.shim.document import shim_document
from tests.support.builders.enclave_plans import SURROUNDINGS, WEB, config_of, plan_of
from tests.support.programs.measured_guest import measured_shim, write_measured
from tests.support.stand_ins.upstream import Upstream
from tests.support.waiting import until_sync

__all__ = ["HOSTNAME", "RunningShim", "ShimResponse", "running_shim"]

HOSTNAME = "web.acme.containers.example"
"""Host name of the enclave."""


@dataclass(frozen=True, slots=True)
class ShimResponse:
    """A response to a client."""

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
        """Return a header; repeated ones are joined by commas."""
        values = self.headers.get_all(name)
        return None if values is None else ", ".join(values)


@dataclass(frozen=True)
class RunningShim:
    """A running shim that listens on a Unix socket."""

    path: Path
    """The socket."""
    upstream: Upstream
    """The upstream."""
    agent: Path
    """The agent's directory, with the mark of a completed boot; no agent is running."""
    spec: Shim
    """The file's ``shim`` section."""
    port: int
    """Port on 127.0.0.1."""
    pid: int
    """Its process."""

    @property
    def log(self) -> str:
        """Its log."""
        return (self.path.parent / "shim.log").read_text()

    def connect(
        self,
        hostname: str | None = HOSTNAME,
        *,
        source: str | None = None,
        protocols: Sequence[str] = (),
    ) -> ssl.SSLSocket:
        """Open a TLS connection.

        Parameters
        ----------
        hostname
            Host name in the handshake (SNI); None = none.
        source
            Source address on the loopback; None = over the Unix socket.
        protocols
            Protocols to offer (ALPN); empty = HTTP/1.1.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if protocols:
            context.set_alpn_protocols(list(protocols))
        plain = socket.socket(socket.AF_UNIX if source is None else socket.AF_INET)
        plain.settimeout(60)
        try:
            if source is None:
                plain.connect(str(self.path))
            else:
                plain.bind((source, 0))
                plain.connect(("127.0.0.1", self.port))
            return context.wrap_socket(plain, server_hostname=hostname)
        except OSError:
            plain.close()
            raise

    def request(
        self,
        target: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        source: str | None = None,
    ) -> ShimResponse:
        """Send a request with exactly this target."""
        connection = http.client.HTTPConnection(HOSTNAME)
        with contextlib.closing(self.connect(source=source)) as secure:
            connection.sock = secure
            connection.putrequest(
                method, target, skip_accept_encoding=True, skip_host="Host" in (headers or {})
            )
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            return ShimResponse(response.status, response.headers, response.read())


@contextlib.contextmanager
def running_shim(
    folder: Path,
    *,
    storage: str | None = None,
    within: float = 60,
    header_millis: int = 30_000,
    booted: bool = True,
    **shim: Any,
) -> Iterator[RunningShim]:
    """Run an upstream and a shim in front of it.

    Parameters
    ----------
    folder
        For configuration, keys and log; short, since it holds sockets. A gate's socket is `g`, that
        of encrypted bodies `e/ehbp.sock`.
    storage
        Storage of its certificates; None = self-signed.
    within
        Timeout in seconds until TLS handshakes succeed.
    header_millis
        Timeout for a client's headers.
    booted
        Whether the boot is complete.
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
    if booted:
        (agent / "booted").touch()
    path = folder / "s"
    listener = socket.create_server(("127.0.0.1", 0))
    plan = plan_of(config=config_of(WEB, shim=spec))
    document = shim_document(plan, "cloister") | {
        "listen": [f"unix/{path}", f"fd/{listener.fileno()}"],
        "headerTimeoutMillis": header_millis,
        "data": str(folder / "data"),
        "agent": str(agent),
        "upstream": f"127.0.0.1:{upstream.port}",
    }
    document.pop("store", None)
    if storage is not None:
        document["store"] = storage
    if "gate" in document:
        document["gate"]["socket"] = str(folder / "g")
    if "bodies" in document:
        document["bodies"]["socket"] = str(folder / "e" / "ehbp.sock")
    place = folder / "shim"
    place.mkdir()
    told = unmeasured_document(plan, SURROUNDINGS) | {"hostnames": [HOSTNAME]}
    write_measured(place, {"shim.json": document}, unmeasured=told)
    log = folder / "shim.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [measured_shim(), "-config", str(place / "shim.json")],
            cwd=place,
            stdout=stream,
            stderr=subprocess.STDOUT,
            pass_fds=[listener.fileno()],
        )
        port = listener.getsockname()[1]
        running = RunningShim(path, upstream, agent, spec, port, process.pid)
        listener.close()
        try:
            until_sync(lambda: _answers(running, process, log), within=within, what="a shim")
            yield running
        finally:
            process.terminate()
            process.wait(20)
            upstream.stop()


def _answers(shim: RunningShim, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    """Return whether TLS handshakes succeed."""
    if process.poll() is not None:
        raise RuntimeError(f"the shim ended:\n{log.read_text()[-4000:]}")
    try:
        shim.connect().close()
    except OSError:
        return False
    return True
