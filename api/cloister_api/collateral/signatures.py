"""Whether a maker has signed an answer: by keys of the makers' roots that are built in. Pure.

Clients verify everything themselves. The cache has to know which answers are genuine before it
lets the newer of two win: what somebody else wrote could have any date.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from typing import cast
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509.oid import NameOID

from cloister_api.collateral.makers import MOST_VALUES, CollateralPiece
from cloister_clients.foreign_json import parse_json

__all__ = ["MakerRoots", "is_signed", "signed_json"]

SIGNED = re.compile(rb'\{"(\w+)":(\{.*\}),"signature":"([0-9a-f]{128})"\}\s*', re.DOTALL)
"""An answer of Intel's in JSON: what is signed, as Intel wrote it, and the signature."""
TCB_SIGNER = "Intel SGX TCB Signing"
LIST_SIGNERS = {"platform": "Intel SGX PCK Platform CA", "processor": "Intel SGX PCK Processor CA"}
NAMES = {"tcbInfo": "TDX", "enclaveIdentity": "TD_QE"}
"""What Intel's answers call themselves."""
MOST_CERTIFICATES = 4
LINES = ("Milan", "Genoa", "Turin")


@dataclass(frozen=True, slots=True)
class MakerRoots:
    """Keys of the makers' roots."""

    amd: Mapping[str, rsa.RSAPublicKey]
    """Those of AMD, by product line; others are not known to this release."""
    intel: ec.EllipticCurvePublicKey
    """Intel's."""

    @staticmethod
    @cache
    def built_in() -> "MakerRoots":
        """Return the makers' own."""
        folder = resources.files("cloister_api.collateral").joinpath("roots")

        def key(name: str) -> object:
            return load_pem_public_key(folder.joinpath(f"{name}.pem").read_bytes())

        amd = {line: cast("rsa.RSAPublicKey", key(line.lower())) for line in LINES}
        return MakerRoots(amd, cast("ec.EllipticCurvePublicKey", key("intel")))


def signed_json(form: str, body: bytes) -> tuple[bytes, bytes] | None:
    """Return what is signed of an answer in JSON, and its signature; None = it has another form.

    Parameters
    ----------
    form
        As `CollateralPiece.form`.
    body
        The answer.
    """
    found = SIGNED.fullmatch(body)
    if found is None or found[1].decode() != form:
        return None
    return found[2], bytes.fromhex(found[3].decode())


def is_signed(
    piece: CollateralPiece, body: bytes, chain: str, roots: MakerRoots, now: datetime
) -> bool:
    """Return whether the maker has signed an answer, about what was asked.

    Parameters
    ----------
    piece
        What was asked.
    body
        The answer.
    chain
        Value of its header with the issuer's certificates; empty = there is none.
    roots
        Whom to believe.
    now
        Present time in UTC, at which the issuer's certificates must be valid.
    """
    try:
        if piece.form == "crl":
            return is_signed_list(piece, body, chain, roots, now)
        return is_signed_json(piece, body, chain, roots, now)
    except (InvalidSignature, UnsupportedAlgorithm):
        return False
    except (AttributeError, KeyError, TypeError, ValueError):  # it has another form
        return False


def is_signed_list(
    piece: CollateralPiece, body: bytes, chain: str, roots: MakerRoots, now: datetime
) -> bool:
    """Return whether a revocation list is signed by the one who may."""
    found = x509.load_der_x509_crl(body)
    if piece.is_amd:
        key = roots.amd.get(piece.subject)
        return key is not None and found.is_signature_valid(key)
    if piece.header is None:
        return found.is_signature_valid(roots.intel)
    issuer = issuer_of(chain, LIST_SIGNERS[piece.subject], roots, now)
    return found.issuer == issuer.subject and found.is_signature_valid(key_of(issuer))


def is_signed_json(
    piece: CollateralPiece, body: bytes, chain: str, roots: MakerRoots, now: datetime
) -> bool:
    """Return whether levels or an identity are signed by the one who may."""
    parts = signed_json(piece.form, body)
    if parts is None:
        return False
    text, signature = parts
    half = len(signature) // 2
    encoded = encode_dss_signature(
        int.from_bytes(signature[:half], "big"), int.from_bytes(signature[half:], "big")
    )
    signer = issuer_of(chain, TCB_SIGNER, roots, now)
    key_of(signer).verify(encoded, text, ec.ECDSA(hashes.SHA256()))
    said = parse_json(text, most=MOST_VALUES)
    about = said["fmspc"].lower() if piece.form == "tcbInfo" else ""
    return bool(said["id"] == NAMES[piece.form] and about == piece.subject)


def issuer_of(chain: str, name: str, roots: MakerRoots, now: datetime) -> x509.Certificate:
    """Return the first certificate of a chain, which Intel's root must have signed.

    Raises
    ------
    InvalidSignature, ValueError
        When it is not that of the issuer.
    """
    listed = x509.load_pem_x509_certificates(unquote(chain).encode())
    first = listed[0]
    names = first.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(listed) > MOST_CERTIFICATES or [each.value for each in names] != [name]:
        raise ValueError(f"the chain is not that of {name}")
    if not first.not_valid_before_utc <= now <= first.not_valid_after_utc:
        raise ValueError("the certificate of the issuer is not valid now")
    hashing = first.signature_hash_algorithm
    if not isinstance(hashing, hashes.SHA256):
        raise ValueError("the certificate of the issuer is signed by another algorithm")  # noqa: TRY004 - of the answer
    roots.intel.verify(first.signature, first.tbs_certificate_bytes, ec.ECDSA(hashing))
    return first


def key_of(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    """Return the key of an issuer of Intel's.

    Raises
    ------
    ValueError
        When it is of another kind.
    """
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("the issuer's key is not of an elliptic curve")  # noqa: TRY004 - of the answer
    return key
