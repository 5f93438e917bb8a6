"""The installation's own certificate authority, and the keys and certificates of the issuer."""

import logging
import os
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cloister_api.certificates.request import CertificateRequest, PermittedNames
from cloister_api.certificates.settings import CertificateSettings
from cloister_api.ledger.certificates import CertificateOrders
from cloister_clients.clock import Clock, utc_now
from cloister_clients.settings import is_open_to_others

YEARS = timedelta(days=3650)
"""Validity of an authority's own certificate."""
SKEW = timedelta(minutes=1)
"""How far before the present a certificate begins, for clients whose clock is slow."""


class AuthorityError(Exception):
    """A key or certificate cannot be created, read or used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class SignedCertificate:
    """A certificate that was signed."""

    chain: str
    """The certificate, then those between it and the root, PEM."""
    not_after: datetime
    """When it expires, in UTC."""


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """An own certificate authority."""

    certificates: tuple[x509.Certificate, ...]
    """Its certificate, then those above it."""
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    """Its private key."""

    @classmethod
    def create(cls, certificate: Path, key: Path, *, name: str, now: datetime) -> Self:
        """Create an authority with a new key.

        Parameters
        ----------
        certificate, key
            Files to write; neither may exist.
        now
            Present time in UTC.

        Raises
        ------
        AuthorityError
            When a file exists or cannot be written.
        """
        private = make_key(key)
        made = self_signed(private, name, now)
        try:
            write_new(certificate, made.public_bytes(serialization.Encoding.PEM), 0o644)
        except AuthorityError:
            key.unlink()
            raise
        return cls((made,), private)

    @classmethod
    def read(cls, certificate: Path, key: Path) -> Self:
        """Read an authority.

        Raises
        ------
        AuthorityError
            When a file is missing, open to others, or the two do not belong together.
        """
        private = read_key(key)
        try:
            found = x509.load_pem_x509_certificates(certificate.read_bytes())
        except FileNotFoundError as error:
            raise AuthorityError(
                f"{certificate} does not exist; `cloister ca create` creates it"
            ) from error
        except OSError as error:
            raise AuthorityError(f"{certificate}: {error.strerror}") from error
        except ValueError as error:
            raise AuthorityError(f"{certificate} does not hold a certificate (PEM)") from error
        if found[0].public_key() != private.public_key():
            raise AuthorityError(f"{key} is not the key of the first certificate in {certificate}")
        with suppress(x509.ExtensionNotFound):
            if found[0].extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
                return cls(tuple(found), private)
        raise AuthorityError(f"the certificate in {certificate} may not sign others (CA:TRUE)")

    @property
    def pem(self) -> str:
        """The certificates that clients must trust, PEM."""
        return "".join(pem_of(one) for one in self.certificates)

    def sign(
        self, request: CertificateRequest, lifetime: timedelta, now: datetime
    ) -> SignedCertificate:
        """Sign a request whose names were allowed.

        Parameters
        ----------
        request
            The request; only its key and its names are taken from it.
        lifetime
            Validity of the certificate; it never outlives the authority's own.
        now
            Present time in UTC.

        Raises
        ------
        AuthorityError
            When the authority's own certificate has expired.
        """
        issuer = self.certificates[0]
        not_after = min(now + lifetime, issuer.not_valid_after_utc).replace(microsecond=0)
        if not_after <= now:
            raise AuthorityError("the authority's certificate has expired; create a new authority")
        public = request.csr.public_key()
        names = x509.SubjectAlternativeName([x509.DNSName(name) for name in request.names])
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        # RFC 5280, 4.1.2.6: without a subject the alternative name is critical.
        leaf = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(issuer.subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - min(SKEW, lifetime / 2))
            .not_valid_after(not_after)
            .add_extension(names, critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(signs_certificates=False), critical=True)
            .add_extension(usages, critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(_issuer_key(issuer, self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        between = (one for one in self.certificates if one.issuer != one.subject)
        return SignedCertificate("".join(map(pem_of, (leaf, *between))), not_after)


def self_signed(key: ec.EllipticCurvePrivateKey, name: str, now: datetime) -> x509.Certificate:
    """Build the certificate of a new authority."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + YEARS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )


def _issuer_key(
    issuer: x509.Certificate, key: ec.EllipticCurvePublicKey
) -> x509.AuthorityKeyIdentifier:
    """Return how a certificate names its issuer's key: as the issuer itself does.

    RFC 5280, 4.2.1.1. Programs hash a key in different ways, so it cannot be computed.
    """
    try:
        own = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the usage of a key: signing certificates, or handshakes."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def make_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Create the private key of an authority or an account in a new file.

    Raises
    ------
    AuthorityError
        When the file exists or cannot be written.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_new(path, pem, 0o600)
    return key


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read the private key of an authority or an account.

    Raises
    ------
    AuthorityError
        When it is missing, open to others, or not an ECDSA key.
    """
    try:
        found, content = path.stat(), path.read_bytes()
    except FileNotFoundError as error:
        raise AuthorityError(f"{path} does not exist; `cloister ca` creates it") from error
    except OSError as error:
        raise AuthorityError(f"{path}: {error.strerror}") from error
    if is_open_to_others(found, os.geteuid()):
        raise AuthorityError(f"{path} may be read by others; run `chmod 600 {path}`")
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise AuthorityError(
            f"{path} does not hold a private key without password (PEM)"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise AuthorityError(f"{path} does not hold an ECDSA key")
    return key


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a file that must not exist.

    Raises
    ------
    AuthorityError
        When it exists or cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise AuthorityError(f"{path} exists; remove it yourself if it is not needed") from error
    except OSError as error:
        raise AuthorityError(f"{path}: {error.strerror}") from error


def pem_of(certificate: x509.Certificate) -> str:
    """Return a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


if TYPE_CHECKING:
    from cloister_api.certificates.queue import CertificateQueue

logger = logging.getLogger(__name__)

AUTHORITY_NAME = "Cloister development authority"
"""Common name of the authority that a development installation creates."""


def authority_of(
    settings: CertificateSettings | None, *, development: bool
) -> CertificateAuthority | None:
    """Read the own authority; in development it is created at the first start.

    Returns
    -------
    CertificateAuthority or None
        None if another issuer signs, or none does.

    Raises
    ------
    AuthorityError
        When it is missing or cannot be used.
    """
    own = settings and settings.own
    if not own:
        return None
    if development and not own.key.exists() and not own.certificate.exists():
        logger.warning("development: creating a certificate authority in %s", own.certificate)
        return CertificateAuthority.create(
            own.certificate, own.key, name=AUTHORITY_NAME, now=utc_now()
        )
    return CertificateAuthority.read(own.certificate, own.key)


def check_issuer(settings: CertificateSettings | None, *, development: bool) -> None:
    """Read every key and certificate that signing needs, to fail at the start and not later.

    Raises
    ------
    AuthorityError
        When one cannot be used.
    """
    authority_of(settings, development=development)
    acme = settings and settings.acme
    if acme:
        from cloister_api.certificates.account import (  # noqa: PLC0415 - imports the ACME library
            AcmeAccount,
        )
        from cloister_api.certificates.challenges import (  # noqa: PLC0415 - as above
            ChallengeRecords,
        )

        AcmeAccount(acme)
        ChallengeRecords(acme.dns)


def open_queue(
    settings: CertificateSettings | None,
    orders: CertificateOrders,
    clock: Clock,
    permitted: PermittedNames,
) -> "CertificateQueue | None":
    """Build the queue of the ACME account; None if there is no account.

    Parameters
    ----------
    settings
        How certificates are signed; None if nobody signs them.
    orders
        Orders in the ledger.
    permitted
        Which names an Enclave may have certified now.

    Raises
    ------
    AuthorityError
        When one of its keys cannot be read.
    """
    acme = settings and settings.acme
    if not acme:
        return None
    from cloister_api.certificates.queue import (  # noqa: PLC0415 - imports the ACME library
        CertificateQueue,
    )

    return CertificateQueue(acme, orders, clock, permitted)
