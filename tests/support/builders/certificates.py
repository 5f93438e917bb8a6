"""Certificates for servers on the loopback, made for one test."""

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cloister_clients.clock import utc_now

__all__ = ["Certificate", "certificate"]


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate that is its own authority."""

    file: Path
    """Certificate, PEM."""
    key_file: Path
    """Private key, PEM."""
    key: ec.EllipticCurvePrivateKey
    """Private key."""
    der: bytes
    """Certificate, DER."""

    def server(self) -> ssl.SSLContext:
        """Build the SSL context of a server that presents it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key_file)
        return context


def certificate(folder: Path, *addresses: str) -> Certificate:
    """Create a certificate for localhost, 127.0.0.1 and further addresses, valid for a day."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    hosts = [
        x509.DNSName("localhost"),
        *(x509.IPAddress(ipaddress.ip_address(each)) for each in ("127.0.0.1", *addresses)),
    ]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(utc_now() - timedelta(hours=1))
        .not_valid_after(utc_now() + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(key, hashes.SHA256())
    )
    file, key_file = folder / "certificate.pem", folder / "key.pem"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return Certificate(file, key_file, key, made.public_bytes(serialization.Encoding.DER))
