"""The report data of an enclave's evidence, computed as docs/measurement.md describes it."""

import gzip
import hashlib
import json
from base64 import b64decode
from typing import Any

__all__ = ["NO_KEY", "report_data", "report_of"]

NO_KEY = bytes(32)
"""Bound in place of a key where the shim creates a key of its own."""


def report_data(key: bytes, measurement: bytes, nonce: bytes) -> str:
    """Compute the report data in hexadecimal.

    Parameters
    ----------
    key
        SHA-256 of the TLS key (SubjectPublicKeyInfo), or `NO_KEY`.
    measurement
        The measurement document's canonical form.
    nonce
        The nonce; empty = none.
    """
    second = hashlib.sha256(hashlib.sha256(measurement).digest() + nonce).digest()
    return (key + second).hex()


def report_of(document: dict[str, Any]) -> Any:
    """Unpack the report of an attestation document; a dummy is JSON."""
    return json.loads(gzip.decompress(b64decode(document["body"])))
