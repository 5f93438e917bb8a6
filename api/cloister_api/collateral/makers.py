"""Which addresses of the makers are collateral, and until when an answer is valid. Pure.

Sources: AMD, "Versioned Chip Endorsement Key (VCEK) Certificate and KDS Interface Specification";
Intel, "API Documentation for Intel SGX and TDX Provisioning Certification Service", version 4.
"""

import re
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509

from cloister_api.collateral.settings import CollateralSettings
from cloister_clients.foreign_json import parse_json

__all__ = ["CollateralPiece", "UnusableAnswer", "piece_of", "valid_until"]

MOST_VALUES = 20_000
"""Values of an answer in JSON; Intel's have some hundreds."""
_LEVELS = r"(fmcSPL=\d{1,3}&)?blSPL=\d{1,3}&teeSPL=\d{1,3}&snpSPL=\d{1,3}&ucodeSPL=\d{1,3}"
_AMD = "https://kdsintf.amd.com"
_INTEL = "https://api.trustedservices.intel.com"
_INTEL_CERTIFICATES = "https://certificates.trustedservices.intel.com"


class UnusableAnswer(Exception):  # noqa: N818 - says what is wrong
    """An answer is not what the maker publishes at that address."""


@dataclass(frozen=True, slots=True)
class CollateralPiece:
    """One piece of collateral."""

    address: str
    """Address of the maker."""
    url: str
    """Where it is fetched."""
    form: str
    """crl, certificate, chain, or the name of the field of its JSON that has nextUpdate."""
    subject: str = ""
    """What it is about: a product line of AMD, a class of processors or an authority of Intel."""
    header: str | None = None
    """Header of the answer with the certificates of its issuer; None = there is none."""

    @property
    def maker(self) -> str:
        """Host of the maker's service."""
        return self.address.split("/")[2]

    @property
    def is_amd(self) -> bool:
        """Whether AMD publishes it."""
        return self.address.startswith(_AMD)

    @property
    def is_dated(self) -> bool:
        """Whether an older one may lack what the maker found since."""
        return self.form not in {"certificate", "chain"}


_FORMS: tuple[tuple[str, re.Pattern[str], str, str | None], ...] = (
    (_AMD, re.compile(r"/v[cl]ek/v1/(?P<subject>[A-Z][a-z]{2,15})/crl"), "crl", None),
    (_AMD, re.compile(r"/v[cl]ek/v1/[A-Z][a-z]{2,15}/cert_chain"), "chain", None),
    (
        _AMD,
        re.compile(rf"/vcek/v1/[A-Z][a-z]{{2,15}}/([0-9a-f]{{16}}|[0-9a-f]{{128}})\?{_LEVELS}"),
        "certificate",
        None,
    ),
    (
        _INTEL,
        re.compile(r"/tdx/certification/v4/tcb\?fmspc=(?P<subject>[0-9a-f]{12})"),
        "tcbInfo",
        "tcb-info-issuer-chain",
    ),
    (
        _INTEL,
        re.compile(r"/tdx/certification/v4/qe/identity"),
        "enclaveIdentity",
        "sgx-enclave-identity-issuer-chain",
    ),
    (
        _INTEL,
        re.compile(
            r"/sgx/certification/v4/pckcrl\?ca=(?P<subject>platform|processor)&encoding=der"
        ),
        "crl",
        "sgx-pck-crl-issuer-chain",
    ),
    (_INTEL_CERTIFICATES, re.compile(r"/IntelSGXRootCA\.der"), "crl", None),
)


def piece_of(address: str, settings: CollateralSettings) -> CollateralPiece | None:
    """Return what is at an address of a maker, and where it is fetched.

    Parameters
    ----------
    address
        The maker's address.
    settings
        Where the services are.

    Returns
    -------
    CollateralPiece or None
        None = there is no collateral at that address.
    """
    bases = {
        _AMD: settings.amd,
        _INTEL: settings.intel,
        _INTEL_CERTIFICATES: settings.intel_certificates,
    }
    for maker, pattern, form, header in _FORMS:
        path = address.removeprefix(maker)
        found = pattern.fullmatch(path) if address.startswith(f"{maker}/") else None
        if found is not None:
            subject = found.groupdict().get("subject", "")
            return CollateralPiece(address, bases[maker] + path, form, subject, header)
    return None


def valid_until(form: str, body: bytes) -> datetime:
    """Return until when an answer is valid.

    Parameters
    ----------
    form
        As `CollateralPiece.form`.
    body
        The answer.

    Raises
    ------
    UnusableAnswer
        When it is something else, such as the page of a proxy.
    """
    try:
        if form == "crl":
            end = x509.load_der_x509_crl(body).next_update_utc
        elif form == "certificate":
            end = x509.load_der_x509_certificate(body).not_valid_after_utc
        elif form == "chain":
            chain = x509.load_pem_x509_certificates(body)
            end = min(each.not_valid_after_utc for each in chain)
        else:
            end = datetime.fromisoformat(parse_json(body, most=MOST_VALUES)[form]["nextUpdate"])
    except (KeyError, TypeError, ValueError) as error:
        raise UnusableAnswer(f"it is not a {form}") from error
    if end is None or end.tzinfo is None:
        raise UnusableAnswer("it does not say when it is to be replaced")
    return end
