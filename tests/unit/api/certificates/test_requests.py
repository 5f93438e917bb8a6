"""What an enclave may ask to be signed, and what an own authority makes of it."""

import base64
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.verification import PolicyBuilder, Store

from cloister_api.certificates.authority import AuthorityError, CertificateAuthority
from cloister_api.certificates.request import RequestError, read_request
from tests.support.builders.signing_requests import new_key, signing_request

HOST = "web.acme.containers.example"
NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def without_signature() -> str:
    """Return a request whose last byte of the signature was changed."""
    lines = signing_request(HOST).strip().splitlines()
    der = bytearray(base64.b64decode("".join(lines[1:-1])))
    der[-1] ^= 1
    return "\n".join([lines[0], base64.b64encode(bytes(der)).decode(), lines[-1]])


REFUSED = {
    "empty": ("", "one PEM block"),
    "no request": ("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----",
                   "is not a certificate signing request"),
    "two requests": (signing_request(HOST) + signing_request(HOST), "one PEM block"),
    "text around it": ("hello\n" + signing_request(HOST), "one PEM block"),
    "signature of another": (without_signature(), "signature"),
    "RSA": (signing_request(HOST, key=rsa.generate_private_key(65537, 2048)), "P-256"),
    "another curve": (signing_request(HOST, key=ec.generate_private_key(ec.SECP521R1())), "P-256"),
    "no names": (signing_request(), "names no host"),
    "an address": (signing_request(HOST, general=[x509.IPAddress(ip_address("192.0.2.1"))]),
                   "not a host name"),
    "a mail address": (signing_request(general=[x509.RFC822Name("a@b.example")]),
                       "not a host name"),
    "an authority": (signing_request(HOST, extensions=[x509.BasicConstraints(True, None)]),
                     "extensions"),
    "another subject": (signing_request(HOST, subject="Someone Else"), "subject"),
    "a challenge": (signing_request(HOST, challenge=b"word"), "attributes"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_an_unusual_request_is_refused(case: str) -> None:
    text, words = REFUSED[case]
    with pytest.raises(RequestError, match=words):
        read_request(text)


def test_names_are_sorted_lower_case_and_each_once() -> None:
    request = read_request(signing_request("b.example", "A.example", "a.example"))
    assert request.names == ("a.example", "b.example")


def test_the_common_name_may_be_one_of_the_names() -> None:
    assert read_request(signing_request(HOST, subject=HOST)).names == (HOST,)


def test_the_same_request_has_the_same_digest() -> None:
    text = signing_request(HOST)
    assert read_request(text).digest == read_request(read_request(text).pem).digest
    assert read_request(text).digest != read_request(signing_request(HOST)).digest


def made(folder: Path) -> CertificateAuthority:
    return CertificateAuthority.create(
        folder / "ca.pem", folder / "ca.key", name="Test authority", now=NOW
    )


def test_a_certificate_is_what_was_asked_for_and_verifies(tmp_path: Path) -> None:
    authority, key = made(tmp_path), new_key()
    signed = authority.sign(read_request(signing_request(HOST, key=key)), timedelta(days=30), NOW)
    assert signed.not_after == NOW + timedelta(days=30)
    leaf = x509.load_pem_x509_certificate(signed.chain.encode())
    assert leaf.public_key() == key.public_key()
    store = Store(
        list(CertificateAuthority.read(tmp_path / "ca.pem", tmp_path / "ca.key").certificates)
    )
    verifier = PolicyBuilder().store(store).time(NOW).build_server_verifier(x509.DNSName(HOST))
    assert len(verifier.verify(leaf, [])) == 2


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    authority, request = made(tmp_path), read_request(signing_request(HOST))
    end = authority.certificates[0].not_valid_after_utc
    assert authority.sign(request, timedelta(days=30), end - timedelta(days=1)).not_after == end
    with pytest.raises(AuthorityError, match="create a new authority"):
        authority.sign(request, timedelta(days=30), end)


def test_an_authority_is_never_overwritten(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(AuthorityError, match=r"ca\.key exists"):
        made(tmp_path)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(AuthorityError, match=r"ca\.pem exists"):
        made(tmp_path)
    assert not (tmp_path / "ca.key").exists()


def test_an_unusable_authority_is_refused_with_the_remedy(tmp_path: Path) -> None:
    certificate, key = tmp_path / "ca.pem", tmp_path / "ca.key"
    with pytest.raises(AuthorityError, match="`cloister ca` creates it"):
        CertificateAuthority.read(certificate, key)
    authority = made(tmp_path)
    key.chmod(0o640)
    with pytest.raises(AuthorityError, match="chmod 600"):
        CertificateAuthority.read(certificate, key)
    key.chmod(0o600)
    leaf_key = new_key()
    leaf = authority.sign(read_request(signing_request(HOST, key=leaf_key)), timedelta(1), NOW)
    certificate.write_text(leaf.chain)
    with pytest.raises(AuthorityError, match="is not the key"):
        CertificateAuthority.read(certificate, key)
    key.write_text("no key")
    with pytest.raises(AuthorityError, match="not hold a private key"):
        CertificateAuthority.read(certificate, key)
