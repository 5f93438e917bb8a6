"""Whose signatures count: Intel's answers of 2023, which go-tdx-guest publishes, and forgeries.

The built-in keys are compared with those of the verifier in Go (`internal/verify/roots_test.go`).
"""

import base64
import dataclasses
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from cloister_api.collateral.editions import CollateralEdition
from cloister_api.collateral.makers import CollateralPiece, UnusableAnswer, piece_of
from cloister_api.collateral.settings import CollateralSettings
from cloister_api.collateral.signatures import MakerRoots, is_signed, signed_json

PUBLISHED = json.loads(Path("tests/data/collateral/intel-2023.json").read_text())
THEN = datetime(2023, 6, 20, tzinfo=UTC)
TCB = next(each for each in PUBLISHED if "/tcb?" in each)
IDENTITY = next(each for each in PUBLISHED if each.endswith("/qe/identity"))
LISTED = next(each for each in PUBLISHED if "pckcrl" in each)
ROOTS = MakerRoots.built_in()


def of(address: str) -> tuple[CollateralPiece, bytes, str]:
    """Return what was asked at an address, the answer and its chain."""
    piece = piece_of(address, CollateralSettings())
    assert piece is not None
    published = PUBLISHED[address]
    return piece, base64.b64decode(published["body"]), published["chain"]


@pytest.mark.parametrize("address", PUBLISHED)
def test_intels_own_answers_are_signed(address: str) -> None:
    piece, body, chain = of(address)
    assert is_signed(piece, body, chain, ROOTS, THEN)
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    assert not is_signed(piece, body, chain, dataclasses.replace(ROOTS, intel=other), THEN)
    edition = CollateralEdition.of(piece.form, body, is_signed=True)
    assert edition.issued_at.year == 2023
    assert edition.number == (1 if piece.form == "crl" else 15)
    assert CollateralEdition.read(edition.text, piece.form) == edition


@pytest.mark.parametrize("address", [TCB, IDENTITY, LISTED])
@pytest.mark.parametrize("chain", ["", "x", "-----BEGIN CERTIFICATE-----"])
def test_without_its_chain_an_answer_counts_as_unsigned(address: str, chain: str) -> None:
    piece, body, _ = of(address)
    assert not is_signed(piece, body, chain, ROOTS, THEN)


def test_the_chain_must_be_that_of_the_issuer_and_valid() -> None:
    piece, body, chain = of(TCB)
    assert not is_signed(piece, body, of(LISTED)[2], ROOTS, THEN)
    assert not is_signed(piece, body, 4 * chain, ROOTS, THEN)
    for year in (2017, 2060):
        assert not is_signed(piece, body, chain, ROOTS, THEN.replace(year=year))
    piece, body, chain = of(LISTED)
    assert not is_signed(dataclasses.replace(piece, subject="processor"), body, chain, ROOTS, THEN)


def test_every_byte_of_what_intel_signed_counts() -> None:
    piece, body, chain = of(TCB)
    for change in (
        body.replace(b'"tcbEvaluationDataNumber":15', b'"tcbEvaluationDataNumber":16'),
        body.replace(b'{"tcbInfo":', b'{"tcbInfo":{},"tcbInfo":'),
        body.replace(b',"signature":', b',"TcbInfo":{},"signature":'),
        body.replace(b'{"tcbInfo":', b'{"TcbInfo":'),
        body.replace(b'{"tcbInfo":', b'{ "tcbInfo":'),
        re.sub(rb'"signature":"..', b'"signature":"00', body),
        b"",
    ):
        assert change != body
        assert not is_signed(piece, change, chain, ROOTS, THEN)
    assert not is_signed(dataclasses.replace(piece, subject="0" * 12), body, chain, ROOTS, THEN)
    assert signed_json("enclaveIdentity", body) is None


def test_lists_of_amd_are_judged_by_the_product_line() -> None:
    """Nobody here has a list that AMD signed: that the keys are AMD's is compared in Go."""
    assert set(ROOTS.amd) == {"Milan", "Genoa", "Turin"}
    assert all(isinstance(each, rsa.RSAPublicKey) for each in ROOTS.amd.values())
    assert {each.key_size for each in ROOTS.amd.values()} == {4096}
    _, body, _ = of(LISTED)
    for line in ("Milan", "Venice"):
        piece = piece_of(f"https://kdsintf.amd.com/vcek/v1/{line}/crl", CollateralSettings())
        assert piece is not None
        assert not is_signed(piece, body, "", ROOTS, THEN)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"issueDate": "2026-01-01T00:00:00Z"},
        {"issueDate": "2026-01-01T00:00:00", "tcbEvaluationDataNumber": 1},
        {"issueDate": "1969-01-01T00:00:00Z", "tcbEvaluationDataNumber": 1},
        {"issueDate": "2026-01-01T00:00:00Z", "tcbEvaluationDataNumber": -1},
        {"issueDate": "2026-01-01T00:00:00Z", "tcbEvaluationDataNumber": "x"},
    ],
)
def test_what_does_not_say_when_it_was_issued_is_unusable(said: dict[str, object]) -> None:
    with pytest.raises(UnusableAnswer):
        CollateralEdition.of("tcbInfo", json.dumps({"tcbInfo": said}).encode(), is_signed=False)
