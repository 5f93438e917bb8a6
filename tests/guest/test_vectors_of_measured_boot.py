"""The vectors of a measured boot, judged by a reading of the TCG's formats in Python alone.

It shares neither code nor language with the verifier: signatures and certificates are those of
``cryptography``, layouts are those of "TPM 2.0 Library, Part 2: Structures" and of the "PC Client
Platform Firmware Profile". What comes before the evidence (nonce, measurement) and after it (the
connection's key) is left to `cloister-verify`.
"""

import base64
import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from tests.support.attestation_vectors import BASES, CLIENTS, FOLDER, VECTORS, applied

BEFORE = {"document", "freshness", "measurement"}
"""Steps before the evidence is read."""
AFTER = {"TLS key"}
BOOT = [
    each
    for each in VECTORS
    if each["base"] == "boot"
    and each["verdict"]["step"] not in BEFORE
    and each.get("client", {}).get("boot_platform") != {}
]
"""Vectors whose evidence is read."""
MAGIC, QUOTE = b"\xffTCG", b"\x80\x18"
ECDSA_SHA256 = b"\x00\x18\x00\x0b"
SELECTED = b"\x00\x00\x00\x01\x00\x0b\x03\xff\x03\x00"
"""One selection: of SHA-256, PCR 0 to 9."""
SHA256 = 0x000B
NO_ACTION, TAG, APPLICATION = 3, 6, 0x80000003
WORDS = [
    hashlib.sha256(each).digest()
    for each in (b"Calling EFI Application from Boot Option", bytes(4))
]
"""What firmware measures into PCR 4 beside what it starts."""
ATTESTATION_KEY = x509.ObjectIdentifier("2.23.133.8.3")


class Reader:
    """Reads bytes from the front."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        if size > len(self.rest):
            raise ValueError("too short")
        found, self.rest = self.rest[:size], self.rest[size:]
        return found

    def number(self, form: str) -> int:
        """Return the next number, of a form of `struct`."""
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])


@dataclass
class Event:
    """An event of the log."""

    register: int
    kind: int
    digest: bytes
    data: bytes


@dataclass
class Quote:
    """What a TPM signed."""

    bound: bytes
    digest: bytes

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Read a TPMS_ATTEST."""
        reader = Reader(data)
        if reader.take(6) != MAGIC + QUOTE:
            raise ValueError("no quote")
        reader.take(reader.number(">H"))
        bound = reader.take(reader.number(">H"))
        reader.take(17 + 8)  # clock and firmware
        if reader.take(len(SELECTED)) != SELECTED:
            raise ValueError("other registers")
        digest = reader.take(reader.number(">H"))
        if reader.rest:
            raise ValueError("bytes follow")
        return cls(bound, digest)


def events_of(log: bytes) -> list[Event]:
    """Read a log of the form that the first event describes: digests of SHA-256 alone."""
    reader = Reader(log)
    reader.take(4 + 4 + 20)
    reader.take(reader.number("<I"))
    found = []
    while reader.rest:
        register, kind, count = (reader.number("<I") for _ in range(3))
        if count != 1 or reader.number("<H") != SHA256:
            raise ValueError("other digests")
        digest = reader.take(32)
        found.append(Event(register, kind, digest, reader.take(reader.number("<I"))))
    return found


def replayed(events: list[Event], register: int) -> str:
    value = bytes(32)
    for event in events:
        if event.register == register and event.kind != NO_ACTION:
            value = hashlib.sha256(value + event.digest).digest()
    return value.hex()


def certified_key(raw: bytes, at: datetime) -> ec.EllipticCurvePublicKey | None:
    """Return the certified key; None = nobody who is trusted certified it, or not now."""
    root, issuer = x509.load_pem_x509_certificates((FOLDER / "boot-root.pem").read_bytes())
    try:
        own = x509.load_der_x509_certificate(raw)
        for certificate, above in ((own, issuer), (issuer, root), (root, root)):
            key, hashed = above.public_key(), certificate.signature_hash_algorithm
            assert isinstance(key, rsa.RSAPublicKey)
            assert hashed is not None
            assert certificate.issuer == above.subject
            key.verify(certificate.signature, certificate.tbs_certificate_bytes, PKCS1v15(), hashed)
            if not certificate.not_valid_before_utc <= at <= certificate.not_valid_after_utc:
                return None
        usage = own.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (ValueError, InvalidSignature):
        return None
    found = own.public_key()
    is_right = isinstance(found, ec.EllipticCurvePublicKey) and ATTESTATION_KEY in usage
    return found if is_right and isinstance(found, ec.EllipticCurvePublicKey) else None


def is_signed(key: ec.EllipticCurvePublicKey, quote: bytes, signature: bytes) -> bool:
    reader = Reader(signature)
    try:
        if reader.take(4) != ECDSA_SHA256:
            return False
        r, s = (int.from_bytes(reader.take(reader.number(">H"))) for _ in range(2))
        key.verify(encode_dss_signature(r, s), quote, ec.ECDSA(hashes.SHA256()))
    except (ValueError, InvalidSignature):
        return False
    return not reader.rest


def refused_at(document: dict[str, Any], known: dict[str, Any]) -> str:
    """Return the step at which the evidence is refused; empty = at none."""
    try:
        return next((step for step, passed in steps(document, known) if not passed), "")
    except ValueError:
        return "event log"


def steps(document: dict[str, Any], known: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield each step and whether it passes; a log that cannot be read is a ValueError."""
    evidence = json.loads(base64.b64decode(document["cpu_evidence"]["report_base64"]))
    certificate, log, quote, signature = (
        base64.b64decode(evidence[each])
        for each in ("certificate", "event_log", "quote", "signature")
    )
    registers, platform = evidence["registers"], known["boot_platform"]
    yield "evidence", len(registers) == 10
    key = certified_key(certificate, datetime.fromisoformat(known["time"]))
    yield "certificate", key is not None
    yield "quote signature", key is not None and is_signed(key, quote, signature)
    read = Quote.read(quote)
    yield "report data", read.bound.hex() == document["challenge"]["report_data"]
    digest = hashlib.sha256(bytes.fromhex("".join(registers))).digest()
    yield "registers", digest == read.digest
    events = events_of(log)
    wanted = platform["registers"].items()
    yield "event log", all(replayed(events, at) == value for at, value in enumerate(registers))
    yield "firmware", all(registers[int(name)] == value for name, value in wanted)
    yield from started(events, platform, known["measurement"])


def started(
    events: list[Event], platform: dict[str, Any], measurement: str
) -> Iterator[tuple[str, bool]]:
    """Yield the steps about what the firmware and the kernel started."""
    all_of = [each for each in events if each.register == 4]
    noise = [each for each in all_of if each.digest in WORDS]
    programs = [each.digest.hex() for each in all_of if each.kind == APPLICATION]
    is_alone = programs == [platform["kernel"]] and len(all_of) == len(noise) + 1
    yield "kernel", is_alone
    line = platform["command_line"].replace("{measurement}", measurement) + "\0"
    digest = hashlib.sha256(line.encode("utf-16-le")).digest()
    told = [each for each in events if each.register == 9]
    are_two = len(told) == 2 and {each.kind for each in told} == {TAG}
    yield "command line", are_two and told[0].digest == digest
    yield "initrd", told[1].digest.hex() == platform["initrd"]


def test_there_is_one_for_each_step() -> None:
    honest = json.loads(base64.b64decode(BASES["boot"]["document"]))
    named = {step for step, _ in steps(honest, CLIENTS["boot"])}
    assert named <= {each["verdict"]["step"] for each in BOOT}


@pytest.mark.parametrize("vector", BOOT, ids=[each["name"] for each in BOOT])
def test_the_evidence_is_refused_at_the_same_step(vector: dict[str, Any]) -> None:
    known = CLIENTS["boot"] | vector.get("client", {})
    document = json.loads(applied(vector, base64.b64decode(BASES["boot"]["document"])))
    step = vector["verdict"]["step"]
    passed = vector["verdict"]["code"] == 15 or step in AFTER
    assert refused_at(document, known) == ("" if passed else step)
