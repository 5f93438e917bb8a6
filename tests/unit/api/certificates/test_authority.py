"""Certificates that an own authority signs."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cloister_api.certificates.authority import CertificateAuthority
from cloister_api.certificates.request import CertificateRequest

NOW = datetime(2026, 11, 25, tzinfo=UTC)
KEY = ec.generate_private_key(ec.SECP256R1())


def authority(*extensions: x509.ExtensionType) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "made elsewhere")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=9))
    )
    for each in (x509.BasicConstraints(ca=True, path_length=None), *extensions):
        builder = builder.add_extension(each, critical=False)
    return builder.sign(KEY, hashes.SHA256())


@pytest.mark.parametrize(
    ("extensions", "named"),
    [
        # As Go does since 1.25: another hash than the one that we would take.
        ([x509.SubjectKeyIdentifier(b"a" * 20)], b"a" * 20),
        ([], x509.SubjectKeyIdentifier.from_public_key(KEY.public_key()).digest),
    ],
    # The key, and so the second digest, is another one in each worker.
    ids=["as it says", "by its key"],
)
def test_a_certificate_names_the_issuers_key_as_the_issuer_does(
    extensions: list[x509.ExtensionType], named: bytes
) -> None:
    csr = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .sign(KEY, hashes.SHA256())
    )
    request = CertificateRequest(csr, ("web.example.com",))
    issuer = authority(*extensions)
    chain = CertificateAuthority((issuer,), KEY).sign(request, timedelta(days=1), NOW).chain
    leaf = x509.load_pem_x509_certificate(chain.encode())
    found = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert found.key_identifier == named
    leaf.verify_directly_issued_by(issuer)
