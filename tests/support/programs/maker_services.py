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
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509.oid import NameOID
from typing_extensions import override

from cloister_clients.clock import utc_now

__all__ = ["CHIP", "LEVELS", "MakerServices", "maker_services"]

CHIP = "ab" * 64
"""A chip id of AMD."""
AMD_KEY = rsa.generate_private_key(65_537, 2048)
"""Key of AMD's roots."""
INTEL_KEY = ec.generate_private_key(ec.SECP256R1())
"""Key of Intel's root and of all that it certifies."""
TCB_SIGNER = "Intel SGX TCB Signing"
LIST_SIGNERS = {"platform": "Intel SGX PCK Platform CA", "processor": "Intel SGX PCK Processor CA"}
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

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of a path."""
        self.requests.append(path)
        if self.status != 200 or self.garbage:
            return self.status, {}, b"<html>not now</html>"
        header, signer = "", ""
        if "/tcb?" in path:
            header, signer = "TCB-Info-Issuer-Chain", TCB_SIGNER
            body = self._json("tcbInfo", id="TDX", fmspc=path[-12:])
        elif path.endswith("/qe/identity"):
            header, signer = "SGX-Enclave-Identity-Issuer-Chain", TCB_SIGNER
            body = self._json("enclaveIdentity", id="TD_QE")
        elif path.endswith("cert_chain"):
            body = 2 * self._certificate("SEV", serialization.Encoding.PEM)
        elif "blSPL" in path:
            body = self._certificate("VCEK", serialization.Encoding.DER)
        elif "pckcrl" in path:
            header = "SGX-PCK-CRL-Issuer-Chain"
            signer = LIST_SIGNERS["processor" if "ca=processor" in path else "platform"]
            body = self._list(signer)
        else:
            body = self._list("ARK" if path.endswith("/crl") else "Intel SGX Root CA")
        if self.without_chain or not header:
            return 200, {}, body
        chain = self._certificate(signer, serialization.Encoding.PEM)
        return 200, {header: quote(chain.decode())}, body

    def _json(self, name: str, **about: str) -> bytes:
        """Return an answer of Intel's, without what nobody here reads."""
        signed = json.dumps(
            {
                **about,
                "issueDate": f"{self.now:%Y-%m-%dT%H:%M:%SZ}",
                "nextUpdate": f"{self.now + self.life:%Y-%m-%dT%H:%M:%SZ}",
                "tcbEvaluationDataNumber": 15,
            }
        )
        parts = decode_dss_signature(INTEL_KEY.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        signature = b"".join(part.to_bytes(32, "big") for part in parts)
        return f'{{"{name}":{signed},"signature":"{signature.hex()}"}}'.encode()

    def _certificate(self, subject: str, encoding: serialization.Encoding) -> bytes:
        """Return a certificate of the root's key."""
        made = (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("root"))
            .public_key(INTEL_KEY.public_key())
            .serial_number(1)
            .not_valid_before(self.now)
            .not_valid_after(self.now + self.life)
            .sign(INTEL_KEY, hashes.SHA256())
        )
        return made.public_bytes(encoding)

    def _list(self, issuer: str) -> bytes:
        """Return a revocation list of nothing; AMD signs by RSA-PSS."""
        made = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(named(issuer))
            .last_update(self.now)
            .next_update(self.now + self.life)
            .add_extension(x509.CRLNumber(1), critical=False)
        )
        if issuer != "ARK":
            signed = made.sign(INTEL_KEY, hashes.SHA256())
        else:
            pss = padding.PSS(padding.MGF1(hashes.SHA384()), hashes.SHA384.digest_size)
            signed = made.sign(AMD_KEY, hashes.SHA384(), rsa_padding=pss)
        return signed.public_bytes(serialization.Encoding.DER)


def named(name: str) -> x509.Name:
    """Return a name of a certificate."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


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
