"""An HTTPS client of enclaves: TLS with the host name (SNI), then one request.

The certificate is verified where the authority is given: that of the installation, which signs the
enclaves' certificates. A self-signed certificate of a shim is not verified, only parsed.
"""

import http.client
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from dev.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Page:
    """A response, and the certificate of its connection."""

    status: int
    """HTTP status."""
    body: str
    """Body as text."""
    certificate_names: tuple[str, ...]
    """Host names of the certificate."""
    issuer: str
    """Issuer of the certificate."""
    serial: int
    """Serial number of the certificate."""
    key: bytes
    """Public key of the certificate (SubjectPublicKeyInfo, DER)."""


def fetch_page(
    address: str,
    port: int,
    host: str,
    path: str,
    *,
    authority: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Page:
    """Fetch one path.

    Parameters
    ----------
    host
        Host name, for the handshake (SNI) and the Host header.
    authority
        CA certificate to verify the enclave's with, PEM; None = do not verify.

    Raises
    ------
    OSError
        When there is no response within 5 seconds or the handshake fails.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(cadata=authority)
    with (
        socket.create_connection((address, port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        der = secure.getpeercert(binary_form=True)
        connection = http.client.HTTPConnection(host)
        connection.sock = secure
        connection.request("GET", path, headers={"Host": host, **(headers or {})})
        response = connection.getresponse()
        body = response.read().decode(errors="replace")
    certificate = x509.load_der_x509_certificate(der or b"")
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return Page(
        status=response.status,
        body=body,
        certificate_names=tuple(names.get_values_for_type(x509.DNSName)),
        issuer=certificate.issuer.rfc4514_string(),
        serial=certificate.serial_number,
        key=certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
    )


@contextmanager
def forward_port(cluster: Cluster, namespace: str, service: str, to: int = 443) -> Iterator[int]:
    """Forward a port of this machine to one of a Service until the block ends.

    Raises
    ------
    ConnectionError
        When kubectl does not forward; with its error output.
    """
    command = [str(cluster.bin("kubectl")), f"--kubeconfig={cluster.kubeconfig}"]
    command += ["port-forward", "-n", namespace, f"service/{service}", f":{to}"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            port = re.search(r"127\.0\.0\.1:(\d+)", line)
            if port is None:
                raise ConnectionError(f"kubectl port-forward failed: {line.strip()}")
            # It writes a line for each connection, and would wait for somebody to read them.
            reader = threading.Thread(target=process.stdout.read)
            reader.start()
            yield int(port[1])
        finally:
            process.terminate()
