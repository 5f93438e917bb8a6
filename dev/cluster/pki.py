"""Certificates of a local cluster: an authority of its own, one identity per component.

Elliptic-curve keys, valid for a year. Files are made once and found again by later runs.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "Pair", "service_account_key"]

LIFETIME = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    """PEM file of the certificate."""
    key: Path
    """PEM file of the private key, readable by its owner alone."""


class Authority:
    """A certificate authority in a folder.

    Parameters
    ----------
    folder
        Where the files lie; made when missing.
    name
        Common name of the authority and first part of its files' names.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
        folder.mkdir(parents=True, exist_ok=True)
        if not self.pair.key.exists() or not self.pair.certificate.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
            certificate = (
                _builder(subject, subject, key)
                .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
                .add_extension(_usage(signs=True), critical=True)
                .sign(key, hashes.SHA256())
            )
            _write(self.pair, certificate, key)

    def client(self, file: str, *, user: str, groups: Iterable[str] = ()) -> Pair:
        """Make, or find, the identity of a client: common name = user, organizations = groups."""
        return self._issue(file, user, tuple(groups), (), ExtendedKeyUsageOID.CLIENT_AUTH)

    def server(
        self, file: str, *, names: Iterable[str], user: str = "", both: bool = False
    ) -> Pair:
        """Make, or find, the certificate of a server for names and addresses.

        Parameters
        ----------
        file
            First part of the files' names.
        names
            DNS names and addresses.
        user
            Common name; empty = the file's name.
        both
            Whether it also serves as a client's, as etcd's members need.
        """
        usages = [ExtendedKeyUsageOID.SERVER_AUTH]
        if both:
            usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        return self._issue(file, user or file, (), tuple(names), *usages)

    def _issue(
        self,
        file: str,
        common_name: str,
        groups: tuple[str, ...],
        names: tuple[str, ...],
        *usages: x509.ObjectIdentifier,
    ) -> Pair:
        pair = Pair(self.folder / f"{file}.crt", self.folder / f"{file}.key")
        if pair.certificate.exists() and pair.key.exists():
            return pair
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
            + [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        )
        authority = x509.load_pem_x509_certificate(self.pair.certificate.read_bytes())
        builder = (
            _builder(subject, authority.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(list(usages)), critical=False)
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
            )
        signer = serialization.load_pem_private_key(self.pair.key.read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        _write(pair, builder.sign(signer, hashes.SHA256()), key)
        return pair


def service_account_key(folder: Path) -> Pair:
    """Make, or find, the key pair that signs service account tokens (public key, private key)."""
    pair = Pair(folder / "service-account.pub", folder / "service-account.key")
    if not pair.certificate.exists() or not pair.key.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        _private(pair.key, key)
        pair.certificate.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
    return pair


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)  # noqa: TID251 - certificates of the local cluster begin now
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(pair: Pair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    _private(pair.key, key)
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _private(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
