"""A verifier of others judges the vectors of TDX: dcap-qvl, which shares no code with ours.

It reads quote and collateral alone. Only its root is replaced, by its own parameter.
"""

import base64
import json
import re
from datetime import datetime
from typing import Any

import dcap_qvl
import pytest

from tests.support.attestation_vectors import BASES, CLIENTS, FOLDER, VECTORS, applied

SIGNATURE, FIRMWARE, DEBUG, MALFORMED = 20, 21, 27, 11
JUDGED = {SIGNATURE, FIRMWARE, DEBUG, MALFORMED}
"""Codes about what it reads."""
IN_THE_MEASUREMENT = {"tdx a debug enclave"}
"""Debug that only the measurement says."""
PERMITTED_THERE = {f"tdx attributes bit {each}" for each in (16, *range(18, 23), 27, 31, 62)}
"""Attributes that it permits and ours refuses: features that no machine of ours is started with."""
UNREAD_STEP = "TD features"
"""The step about XFAM, which it does not read."""

Evidence = tuple[bytes, dict[str, bytes]]


def root() -> bytes:
    """Return the root in Intel's place, DER."""
    text = (FOLDER / "roots.pem").read_text()
    last = re.findall(r"-----BEGIN CERTIFICATE-----(.*?)-----END", text, re.DOTALL)[-1]
    return base64.b64decode(last)


def evidence_of(document: bytes) -> Evidence | None:
    """Return quote and collateral of a document; None = it is of no form that has them."""
    try:
        read = json.loads(document)
        quote = base64.b64decode(read["cpu_evidence"]["report_base64"], validate=True)
        listed = read["collateral"]
        return quote, {each["type"]: base64.b64decode(each["data"]) for each in listed}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def signed(answer: bytes, field: str) -> tuple[str, bytes]:
    """Return the text that Intel signed in an answer, and the signature."""
    text = answer.decode()
    body = text[len(f'{{"{field}":') : text.rindex(',"signature":')]
    return body, bytes.fromhex(json.loads(text)["signature"])


def is_up_to_date(evidence: Evidence, time: str, authority: bytes | None) -> bool:
    """Return whether the foreign verifier accepts evidence, and its level."""
    quote, held = evidence
    try:
        tcb, tcb_signature = signed(held["intel-tcb-info"], "tcbInfo")
        identity, identity_signature = signed(held["intel-qe-identity"], "enclaveIdentity")
        collateral = dcap_qvl.QuoteCollateralV3(
            pck_crl_issuer_chain=held["intel-pck-crl-issuer-chain"].decode(),
            root_ca_crl=held["intel-root-ca-crl"],
            pck_crl=held["intel-pck-crl"],
            tcb_info_issuer_chain=held["intel-tcb-info-issuer-chain"].decode(),
            tcb_info=tcb,
            tcb_info_signature=tcb_signature,
            qe_identity_issuer_chain=held["intel-qe-identity-issuer-chain"].decode(),
            qe_identity=identity,
            qe_identity_signature=identity_signature,
        )
        now = int(datetime.fromisoformat(time).timestamp())
        if authority is None:
            report = dcap_qvl.verify(quote, collateral, now)
        else:
            report = dcap_qvl.verify_with_root_ca(quote, collateral, authority, now)
    except (ValueError, KeyError):
        return False
    return bool(report.status == "UpToDate")


def cases() -> list[tuple[dict[str, Any], Evidence, dict[str, Any]]]:
    """Return the vectors that differ in what it reads, and the honest one."""
    honest = base64.b64decode(BASES["tdx"]["document"])
    own = evidence_of(honest)
    found = []
    for vector in VECTORS:
        evidence = evidence_of(applied(vector, honest)) if vector["base"] == "tdx" else None
        client = vector.get("client", {})
        if evidence is None or vector["name"] in IN_THE_MEASUREMENT | PERMITTED_THERE:
            continue
        if vector["verdict"].get("step") == UNREAD_STEP:
            continue
        if vector["name"] == "tdx" or evidence != own or {"time", "roots"} & client.keys():
            found.append((vector, evidence, CLIENTS["tdx"] | client))
    return found


CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=[each[0]["name"] for each in CASES])
def test_it_accepts_what_ours_does_not_refuse_for_its_evidence(
    case: tuple[dict[str, Any], Evidence, dict[str, Any]],
) -> None:
    vector, evidence, client = case
    authority = None if client.get("roots") == "makers" else root()
    accepted = is_up_to_date(evidence, client["time"], authority)
    refused = vector["verdict"]["code"] in JUDGED
    assert accepted is not refused, vector["about"]


def test_it_judges_many() -> None:
    assert len(CASES) > 50
    codes = {each[0]["verdict"]["code"] for each in CASES}
    assert {0, SIGNATURE, FIRMWARE, DEBUG, 22, 23, 24, 25} <= codes
