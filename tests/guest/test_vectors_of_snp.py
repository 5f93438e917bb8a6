"""The vectors of SNP, judged by a reading of AMD's formats in a few lines of Python.

It shares neither code nor language with the verifier: signatures and certificates are those of
``cryptography``, offsets are those of AMD's "SEV Secure Nested Paging Firmware ABI Specification".
It reads what is signed, and leaves what the signed fields mean to `cloister-verify`.
"""

import base64
import json
from datetime import datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from tests.support.attestation_vectors import BASES, CLIENTS, FOLDER, VECTORS, applied

# AMD's certificates of processors have the serial number 0, and so have those of the vectors.
pytestmark = pytest.mark.filterwarnings("ignore:Parsed a serial number which wasn't positive")

REPORT, SIGNED, R, S, NUMBER = 1184, 0x2A0, 0x2A0, 0x2E8, 72
SIGNATURE, FIRMWARE, MALFORMED = 20, 21, 11
Evidence = tuple[bytes, dict[str, bytes]]
LEVELS = {0x180: 1, 0x181: 2, 0x186: 3, 0x187: 8}
"""Parts of REPORTED_TCB: offset, and the last number of the extension of the key's certificate."""
CHIP_ID = slice(0x1A0, 0x1E0)


def evidence_of(document: bytes) -> Evidence | None:
    """Return report and collateral of a document; None = it is of no form that has them."""
    try:
        read = json.loads(document)
        report = base64.b64decode(read["cpu_evidence"]["report_base64"], validate=True)
        return report, {e["type"]: base64.b64decode(e["data"]) for e in read["collateral"]}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def is_signed(evidence: Evidence, at: datetime) -> bool:
    """Return whether the maker in the roots signed the report, and revoked nothing.

    Each level of the firmware has a key of its own, which certificate and report must name alike.
    """
    report, held = evidence
    ask, ark, _ = x509.load_pem_x509_certificates((FOLDER / "roots.pem").read_bytes())
    try:
        vcek = x509.load_der_x509_certificate(held["amd-vcek"])
        revoked = x509.load_der_x509_crl(held["amd-crl"])
        _issued(ark, ark)
        _issued(ask, ark)
        _issued(vcek, ask)
        _signed_by(ark, revoked.signature, revoked.tbs_certlist_bytes, revoked)
        key = vcek.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        numbers = (int.from_bytes(report[start : start + NUMBER], "little") for start in (R, S))
        key.verify(encode_dss_signature(*numbers), report[:SIGNED], ec.ECDSA(hashes.SHA384()))
    except (ValueError, KeyError, InvalidSignature):
        return False
    named = {
        each.oid.dotted_string.removeprefix("1.3.6.1.4.1.3704.1."): each.value.public_bytes()[2:]
        for each in vcek.extensions
    }
    fits = all(named[f"3.{number}"][-1] == report[at] for at, number in LEVELS.items())
    chip = report[CHIP_ID] in (named["4"], bytes(64))
    valid = all(
        each.not_valid_before_utc <= at <= each.not_valid_after_utc for each in (ark, ask, vcek)
    )
    until = revoked.next_update_utc
    current = until is not None and revoked.last_update_utc <= at <= until
    unused = not any(report[0x208:SIGNED])
    listed = revoked.get_revoked_certificate_by_serial_number(ask.serial_number)
    whole = len(report) == REPORT and unused and fits and chip
    return whole and valid and current and listed is None


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> None:
    """Raise unless the issuer signed the certificate."""
    _signed_by(issuer, certificate.signature, certificate.tbs_certificate_bytes, certificate)


def _signed_by(
    issuer: x509.Certificate,
    signature: bytes,
    content: bytes,
    said: x509.Certificate | x509.CertificateRevocationList,
) -> None:
    key, algorithm = issuer.public_key(), said.signature_hash_algorithm
    assert algorithm is not None
    if isinstance(key, ec.EllipticCurvePublicKey):
        key.verify(signature, content, ec.ECDSA(algorithm))
        return
    assert isinstance(key, rsa.RSAPublicKey)
    parameters: Any = said.signature_algorithm_parameters
    if isinstance(parameters, ec.ECDSA):
        raise InvalidSignature
    key.verify(signature, content, parameters, algorithm)


def cases() -> list[tuple[dict[str, Any], Evidence, dict[str, Any]]]:
    """Return the vectors that differ in what is read here, and the honest one."""
    honest = base64.b64decode(BASES["snp"]["document"])
    own = evidence_of(honest)
    found = []
    for vector in VECTORS:
        evidence = evidence_of(applied(vector, honest)) if vector["base"] == "snp" else None
        client = vector.get("client", {})
        if evidence is None or client.get("roots") == "makers" or "minimum_tcb" in client:
            continue
        if vector["name"] == "snp" or evidence != own or "time" in client:
            found.append((vector, evidence, CLIENTS["snp"] | client))
    return found


CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=[each[0]["name"] for each in CASES])
def test_what_is_signed_is_what_the_verifier_takes_for_signed(
    case: tuple[dict[str, Any], Evidence, dict[str, Any]],
) -> None:
    vector, evidence, client = case
    signed = is_signed(evidence, datetime.fromisoformat(client["time"]))
    refused = vector["verdict"]["code"] in {SIGNATURE, FIRMWARE, MALFORMED}
    assert signed is not refused, vector["about"]


def test_many_are_judged() -> None:
    codes = {each[0]["verdict"]["code"] for each in CASES}
    assert len(CASES) > 50
    assert {0, SIGNATURE, FIRMWARE, MALFORMED, 22, 23, 24, 25, 26, 27} <= codes
