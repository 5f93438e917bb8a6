"""Authorities in the form in which cert-manager keeps them in a Secret: they sign for enclaves.

The forms are those of its manual (Certificate: ``isCA``, ``privateKey.algorithm: ECDSA``): the key
in SEC1, the chain without the root; the extensions are those that it gives an authority.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store

from cloister_api.certificates.authority import CertificateAuthority, key_usage
from cloister_api.certificates.request import CertificateRequest

NOW = datetime(2026, 11, 25, tzinfo=UTC)
NAME = "web.acme.containers.example.com"


class Issued:
    """An authority of cert-manager."""

    def __init__(self, name: str, issuer: "Issued | None" = None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        above = issuer or self
        public, signer = self.key.public_key(), above.key
        identifiers = (
            x509.SubjectKeyIdentifier.from_public_key(public),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
        )
        self.certificate: x509.Certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.certificate.subject if issuer else subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - timedelta(days=1))
            .not_valid_after(NOW + timedelta(days=365))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(key_usage(signs_certificates=True), critical=True)
            .add_extension(identifiers[0], critical=False)
            .add_extension(identifiers[1], critical=False)
            .sign(signer, hashes.SHA256())
        )

    def secret(self, folder: Path) -> tuple[Path, Path]:
        """Write the files of the Secret: tls.crt and tls.key."""
        certificate, key = folder / "tls.crt", folder / "tls.key"
        certificate.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        key.touch(0o600)
        key.write_bytes(
            self.key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        assert key.read_bytes().startswith(b"-----BEGIN EC PRIVATE KEY-----")
        return certificate, key


@pytest.mark.parametrize("between", ["", "enclaves"], ids=["the root itself", "below a root"])
def test_an_authority_of_cert_manager_signs_for_enclaves(tmp_path: Path, between: str) -> None:
    root = Issued("root")
    issued = Issued(between, root) if between else root
    authority = CertificateAuthority.read(*issued.secret(tmp_path))
    key = ec.generate_private_key(ec.SECP256R1())
    csr = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    request = CertificateRequest(csr.sign(key, hashes.SHA256()), (NAME,))
    signed = authority.sign(request, timedelta(days=1), NOW)
    leaf, *chain = x509.load_pem_x509_certificates(signed.chain.encode())
    assert len(chain) == bool(between)
    policy = PolicyBuilder().store(Store([root.certificate])).time(NOW)
    verified = policy.build_server_verifier(x509.DNSName(NAME)).verify(leaf, chain)
    assert verified[-1] == root.certificate
