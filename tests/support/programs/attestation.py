"""The report data of an enclave's evidence, computed as docs/measurement.md describes it."""

import hashlib
import json
from base64 import b64decode
from typing import Any

__all__ = ["bound_key", "report_data", "report_of"]

_ALGORITHM = b"https://cloister.dev/attestation/report-data/v1"


def report_data(document: dict[str, Any], nonce: bytes) -> str:
    """Compute in hexadecimal what the evidence of an attestation document has to bind.

    Parameters
    ----------
    nonce
        The nonce; empty = none.
    """
    material = b64decode(document["crypto_material"])
    parts = (material, document["measurement"].encode(), b"")
    digests = b"".join(hashlib.sha256(part).digest() for part in parts)
    return hashlib.sha256(_ALGORITHM + (nonce or bytes(32)) + digests).hexdigest() + "00" * 32


def bound_key(document: dict[str, Any]) -> str:
    """Return the fingerprint of the TLS key that a document names, in hexadecimal."""
    return str(json.loads(b64decode(document["crypto_material"]))["tls_spki_sha256"])


def report_of(document: dict[str, Any]) -> Any:
    """Decode the report of an attestation document; a dummy is JSON."""
    return json.loads(b64decode(document["cpu_evidence"]["report_base64"]))
