"""The cluster's keys and certificates: three authorities, one identity per component.

Which identity a component needs is documented by the Kubernetes page "PKI certificates and
requirements". Written once per cluster; a file that exists is kept.
"""

import base64
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=3650)


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically, readable by its owner alone."""
    scratch = path.with_suffix(path.suffix + ".new")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    scratch.rename(path)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _name(common: str, groups: Sequence[str] = ()) -> x509.Name:
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def _builder(subject: x509.Name, issuer: x509.Name) -> x509.CertificateBuilder:
    now = datetime.now(UTC)  # noqa: TID251 - certificates are dated by the machine's own clock
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )


@dataclass(frozen=True, slots=True)
class Pair:
    """Files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority in a folder; created on first use.

    Parameters
    ----------
    name
        Its name; also that of its files.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.certificate = folder / f"{name}.crt"
        self.key = folder / f"{name}.key"
        if not self.certificate.exists():
            self._make(name)
        self._certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        loaded = serialization.load_pem_private_key(self.key.read_bytes(), password=None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{self.key} holds no elliptic curve key")
        self._key = loaded

    def _make(self, name: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(f"cloister-{name}")
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            _builder(subject, subject)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .sign(key, hashes.SHA256())
        )
        _write(self.key, _pem(key))
        # The certificate is written last: where it exists, the key exists.
        _write(self.certificate, certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        file: str,
        common: str,
        *,
        groups: Sequence[str] = (),
        hosts: Sequence[str] = (),
    ) -> Pair:
        """Issue a certificate, unless its file exists.

        Parameters
        ----------
        file
            Name of the files, without ending.
        hosts
            Host names and addresses that it may serve; empty = a client certificate.
        """
        pair = Pair(self._folder / f"{file}.crt", self._folder / f"{file}.key")
        if pair.certificate.exists():
            return pair
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(_name(common, groups), self._certificate.subject)
        if hosts:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_general(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            builder.public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(issuer_key, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        _write(pair.key, _pem(key))
        _write(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))
        return pair


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def service_account_keys(folder: Path) -> Pair:
    """Create the key pair that signs the tokens of service accounts.

    Returns
    -------
    Pair
        ``certificate`` is the public key here.
    """
    pair = Pair(folder / "service-account.pub", folder / "service-account.key")
    if not pair.certificate.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        _write(pair.key, _pem(key))
        _write(pair.certificate, public)
    return pair


def kubeconfig(path: Path, *, cluster: str, server: str, authority: Path, pair: Pair) -> Path:
    """Write a self-contained kubeconfig, so that the one file can be copied.

    Parameters
    ----------
    cluster
        Name of the cluster; the context is called ``cloister-<name>``.
    """

    def data(file: Path) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    name = f"cloister-{cluster}"
    user = {"client-certificate-data": data(pair.certificate), "client-key-data": data(pair.key)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, "certificate-authority-data": data(authority)},
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "users": [{"name": name, "user": user}],
    }
    text = yaml.safe_dump(content, sort_keys=False).encode()
    if not path.exists() or path.read_bytes() != text:
        _write(path, text)
    return path
