"""Fakes of AMD's Key Distribution Service and Intel's Provisioning Certification Service.

They speak the makers' HTTP over a socket, with certificates, lists and levels of a root of their
own: nobody but the makers can sign with theirs.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from typing_extensions import override

from cloister_clients.clock import utc_now

__all__ = ["CHIP", "LEVELS", "MakerServices", "maker_services"]

CHIP = "ab" * 64
"""A chip id of AMD."""
LEVELS = "blSPL=3&teeSPL=0&snpSPL=20&ucodeSPL=209"
"""Levels of a firmware of AMD."""


@dataclass(slots=True)
class MakerServices:
    """The services."""

    base: str = ""
    """Their address."""
    now: datetime = field(default_factory=utc_now)
    """When they sign what they serve."""
    life: timedelta = timedelta(days=30)
    """How long it is valid."""
    status: int = 200
    """Status of all answers; a page comes with others."""
    garbage: bool = False
    """Whether they answer with a page, as a proxy that wants a password does."""
    without_chain: bool = False
    """Whether headers with the issuer's certificates are missing."""
    requests: list[str] = field(default_factory=list)
    """Paths of all requests."""
    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )
    """Key of the root."""

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of a path."""
        self.requests.append(path)
        if self.status != 200 or self.garbage:
            return self.status, {}, b"<html>not now</html>"
        chain = quote(self._certificate(serialization.Encoding.PEM).decode())
        header = ""
        if "/tcb?" in path:
            header, body = "TCB-Info-Issuer-Chain", self._json("tcbInfo")
        elif path.endswith("/qe/identity"):
            header, body = "SGX-Enclave-Identity-Issuer-Chain", self._json("enclaveIdentity")
        elif path.endswith("cert_chain"):
            body = 2 * self._certificate(serialization.Encoding.PEM)
        elif "blSPL" in path:
            body = self._certificate(serialization.Encoding.DER)
        else:
            header = "SGX-PCK-CRL-Issuer-Chain" if "pckcrl" in path else ""
            body = self._list()
        found = {} if self.without_chain or not header else {header: chain}
        return 200, found, body

    def _json(self, name: str) -> bytes:
        """Return an answer of Intel's, without what nobody here reads."""
        end = f"{self.now + self.life:%Y-%m-%dT%H:%M:%SZ}"
        return json.dumps({name: {"nextUpdate": end}, "signature": ""}).encode()

    def _name(self) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "maker of tests")])

    def _certificate(self, encoding: serialization.Encoding) -> bytes:
        """Return the root's certificate."""
        made = (
            x509.CertificateBuilder()
            .subject_name(self._name())
            .issuer_name(self._name())
            .public_key(self.key.public_key())
            .serial_number(1)
            .not_valid_before(self.now)
            .not_valid_after(self.now + self.life)
            .sign(self.key, hashes.SHA256())
        )
        return made.public_bytes(encoding)

    def _list(self) -> bytes:
        """Return a revocation list of nothing."""
        made = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name())
            .last_update(self.now)
            .next_update(self.now + self.life)
            .sign(self.key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.DER)


@contextmanager
def maker_services() -> Iterator[MakerServices]:
    """Serve the fakes on loopback."""
    services = MakerServices()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = services.answer(self.path)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    services.base = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield services
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
