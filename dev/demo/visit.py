"""Visit an enclave as a client would: TLS to its host name, then a request.

The demo's shim signs its certificate with an authority of its own that no client knows yet, so the
handshake is not verified here; that the certificate names the host is.
"""

import http.client
import socket
import ssl
from dataclasses import dataclass

from cryptography import x509

__all__ = ["Page", "visit"]


@dataclass(frozen=True, slots=True)
class Page:
    """What a visit brought."""

    status: int
    """HTTP status."""
    body: str
    """Body as text."""
    certificate_names: tuple[str, ...]
    """Host names that the certificate carries."""
    issuer: str
    """Who signed the certificate."""


def visit(address: str, port: int, host: str, path: str) -> Page:
    """Fetch one path.

    Parameters
    ----------
    address, port
        Where the shim listens.
    host
        Host name, for the handshake (SNI) and the Host header.
    path
        Path with a leading slash.

    Raises
    ------
    OSError
        When nobody answers within 5 seconds or the handshake fails.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection((address, port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        der = secure.getpeercert(binary_form=True)
        connection = http.client.HTTPConnection(host)
        connection.sock = secure
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        body = answer.read().decode(errors="replace")
    certificate = x509.load_der_x509_certificate(der or b"")
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return Page(
        status=answer.status,
        body=body,
        certificate_names=tuple(names.get_values_for_type(x509.DNSName)),
        issuer=certificate.issuer.rfc4514_string(),
    )
