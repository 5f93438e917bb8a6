"""Keys and certificate signing requests: those of an enclave, and invalid ones."""

from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

__all__ = ["new_key", "signing_request"]


def new_key() -> ec.EllipticCurvePrivateKey:
    """Create a key on P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def signing_request(
    *names: str,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None,
    subject: str = "",
    extensions: Sequence[x509.ExtensionType] = (),
    general: Sequence[x509.GeneralName] = (),
    challenge: bytes = b"",
) -> str:
    """Create a signing request, PEM.

    Parameters
    ----------
    names
        Host names; none = no subjectAltName.
    key
        Private key; None = a new one on P-256.
    subject
        Common name; empty = no subject.
    challenge
        Challenge password attribute; empty = none.
    """
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)] if subject else [])
    )
    alternatives = [*(x509.DNSName(name) for name in names), *general]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    if challenge:
        oid = x509.oid.AttributeOID.CHALLENGE_PASSWORD
        builder = builder.add_attribute(oid, challenge)
    signed = builder.sign(key or new_key(), hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode()
