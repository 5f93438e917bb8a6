"""Certificate signing requests (PKCS #10, RFC 2986), and names that may be certified."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID, ObjectIdentifier

from cloister_api.cache import BY_NAMESPACE, CachedEnclave, ClusterCache
from cloister_clients.clock import Clock
from cloister_crds.kinds import Organization
from cloister_crds.lifecycle.names.domains import CertificateRequester, find_domain, refusal_of

BEGIN = "-----BEGIN CERTIFICATE REQUEST-----"
END = "-----END CERTIFICATE REQUEST-----"
EXTENSION_REQUEST = ObjectIdentifier("1.2.840.113549.1.9.14")
"""Attribute that holds the requested extensions (RFC 2985, 5.4.2)."""
CURVES = ("secp256r1", "secp384r1")
"""Curves of keys that are accepted (RFC 5480)."""


class RequestError(Exception):
    """The request cannot be signed as it is; the message says what to change."""


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """A request whose form is valid; whether its names may be signed is not checked here."""

    csr: x509.CertificateSigningRequest = field(repr=False)
    """The request."""
    names: tuple[str, ...]
    """Host names that it is for, sorted, each once, in lower case."""

    @property
    def pem(self) -> str:
        """The request as PEM text, and nothing else."""
        return self.csr.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def key_digest(self) -> str:
        """SHA-256 of the public key (SubjectPublicKeyInfo) in hexadecimal."""
        encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        return hashlib.sha256(self.csr.public_key().public_bytes(encoding, form)).hexdigest()

    @property
    def digest(self) -> str:
        """SHA-256 of the request in hexadecimal: the same request sent again has the same."""
        der = self.csr.public_bytes(serialization.Encoding.DER)
        return hashlib.sha256(der).hexdigest()


def read_request(text: str) -> CertificateRequest:
    """Read a request.

    Raises
    ------
    RequestError
        When it is not such a block, its signature does not fit its key, the key is not accepted,
        or it requests anything other than host names.
    """
    stripped = text.strip()
    if not stripped.startswith(BEGIN) or not stripped.endswith(END) or stripped.count(BEGIN) != 1:
        raise RequestError(f"send one PEM block that begins with {BEGIN} and ends with {END}")
    try:
        csr = x509.load_pem_x509_csr(stripped.encode("ascii"))
        key, signed = csr.public_key(), csr.is_signature_valid
        request = CertificateRequest(csr, names_of(csr))
    except (ValueError, UnsupportedAlgorithm, x509.UnsupportedGeneralNameType) as error:
        raise RequestError("the PEM block is not a certificate signing request") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in CURVES:
        raise RequestError("the key must be an ECDSA key on P-256 or P-384")
    if not signed:
        raise RequestError("the signature of the request does not fit its key")
    return request


def names_of(csr: x509.CertificateSigningRequest) -> tuple[str, ...]:
    """Return the host names of a request.

    Raises
    ------
    RequestError
        When it requests anything other than host names.
    """
    if any(attribute.oid != EXTENSION_REQUEST for attribute in csr.attributes):
        raise RequestError("the request has attributes; leave out all but the host names")
    extensions = list(csr.extensions)
    if any(not isinstance(one.value, x509.SubjectAlternativeName) for one in extensions):
        raise RequestError("the request contains extensions; leave out all but subjectAltName")
    if not extensions:
        raise RequestError("the request names no host; put its host names into subjectAltName")
    general = list(extensions[0].value)
    if any(not isinstance(one, x509.DNSName) for one in general):
        raise RequestError("subjectAltName holds something that is not a host name")
    names = {one.value.lower() for one in general}
    if not names or "" in names:
        raise RequestError("the request names no host; put its host names into subjectAltName")
    check_subject(csr.subject, names)
    return tuple(sorted(names))


def check_subject(subject: x509.Name, names: set[str]) -> None:
    """Refuse a subject that is more than one of the host names.

    Raises
    ------
    RequestError
        When it is.
    """
    for attribute in subject:
        named = attribute.oid == NameOID.COMMON_NAME and str(attribute.value).lower() in names
        if not named or len(list(subject)) > 1:
            raise RequestError(
                "the subject must be empty, or a common name that is one of the host names"
            )


class PermittedNames:
    """The names, by what the cache has."""

    def __init__(self, cache: ClusterCache, clock: Clock, containers_domain: str) -> None:
        self._cache = cache
        self._clock = clock
        self._containers_domain = containers_domain

    @property
    def ready(self) -> bool:
        """Whether the cache has been filled; before, nothing is refused or permitted."""
        return self._cache.ready

    def live(self, uid: str) -> CachedEnclave | None:
        """Return the Enclave with a uid; None if it is gone, or makes no requests any more."""
        entry = self._cache.enclaves.by_uid(uid)
        return entry.value if entry is not None and entry.value.live else None

    def existing(self) -> frozenset[str] | None:
        """Return the uids of all Enclaves; None if they are not known yet."""
        if not self.ready:
            return None
        return frozenset(entry.value.uid for entry in self._cache.enclaves.all())

    def refusal(self, enclave: CachedEnclave, names: Iterable[str]) -> str:
        """Return why an Enclave gets no certificate for names; empty if it gets one."""
        held = self._cache.containers.get(enclave.container, enclave.namespace)
        organization = self._organization(enclave.namespace)
        if held is None or held.value.container.metadata.uid != enclave.container_uid:
            return f"container {enclave.container} of this enclave does not exist any more"
        if organization is None:
            return f"no organization owns the namespace {enclave.namespace}"
        requester = CertificateRequester(
            held.value.container, organization, enclave.debug, self._containers_domain
        )
        domains = self._cache.domains_of(enclave.namespace)
        found = []
        for name in names:
            claim = self._cache.claims.get(name)
            found.append(
                refusal_of(
                    name,
                    requester,
                    claim=claim.value if claim is not None else None,
                    domain=find_domain(name, domains),
                    now=self._clock(),
                )
            )
        return "; ".join(each for each in found if each)

    def challenge_label(self, uid: str, hostname: str) -> str:
        """Return the label that proves control of a custom domain; empty if not known yet."""
        enclave = self.live(uid)
        domains = self._cache.domains_of(enclave.namespace) if enclave is not None else ()
        domain = find_domain(hostname, domains)
        records = domain.status.records if domain is not None else None
        return records.challenge_label if records is not None else ""

    def _organization(self, namespace: str) -> Organization | None:
        owners = self._cache.organizations.by_index(BY_NAMESPACE, namespace)
        return next((entry.value for entry in owners), None)
