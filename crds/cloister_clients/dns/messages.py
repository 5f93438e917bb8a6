"""Messages of DNS (RFC 1035): queries, and as much of a response as is used. Pure.

Tenants' servers shape the responses, and resolvers pass them on. A general library takes seconds
for 64 KiB of records whose names point into each other; here a name is read once, at most 255 bytes
of it, and no more than 64 records are looked at.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import ip_address

import dns.exception
import dns.name

__all__ = [
    "MOST_RECORDS",
    "DnsRecord",
    "Kind",
    "Labels",
    "Response",
    "ResponseError",
    "labels_of",
    "query",
    "read_response",
    "text_of",
]

Labels = tuple[bytes, ...]
"""A name, in lower case and without the root."""

MOST_RECORDS = 64
"""How many records of a response are read."""
MOST_STEPS = 256
"""Labels and pointers of a name: it has at most 127 labels."""
LONGEST_NAME = 255
"""Bytes of a name with the lengths of its labels."""
POINTER = 0xC0
LONGEST_LABEL = 63
INTERNET = 1
HEADER = struct.Struct("!6H")
RECORD = struct.Struct("!HHIH")
PAYLOAD = 1232
"""Largest response by a datagram in bytes (DNS flag day 2020); larger ones use a stream."""
EXTENSION = b"\0" + RECORD.pack(41, PAYLOAD, 0, 0)
"""DnsRecord of a query that says so (RFC 6891)."""


class Kind(IntEnum):
    """Types of records that are read."""

    A = 1
    NS = 2
    CNAME = 5
    SOA = 6
    TXT = 16
    AAAA = 28


KINDS = {int(each): each for each in Kind}
NAMES = (Kind.NS, Kind.CNAME, Kind.SOA)
"""Types of records that begin with a name."""
ADDRESSES = {Kind.A: 4, Kind.AAAA: 16}
"""Types of records that are an address, with its bytes."""
SUCCESS, NO_SUCH_NAME = 0, 3
"""Codes of responses that say what there is."""


class ResponseError(Exception):
    """A response is malformed, or not one to the query."""


@dataclass(frozen=True, slots=True)
class DnsRecord:
    """A record of a known type."""

    owner: Labels
    """The name that has it."""
    kind: Kind
    """Its type."""
    value: str
    """Its texts, joined; its name, in lower case without the last dot; or its address."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response, without what is not read."""

    authoritative: bool
    """Whether the server owns the zone."""
    truncated: bool
    """Whether it was too long for a datagram; then no records are read."""
    usable: bool
    """Whether it says what there is: success, or that there is no such name."""
    count: int = 0
    """How many answers it has, those that are not read included."""
    answers: tuple[DnsRecord, ...] = ()
    """The first records that answer the query."""
    authority: tuple[DnsRecord, ...] = ()
    """The first records about the zone."""


def labels_of(name: str) -> Labels:
    """Return the labels of a name.

    Raises
    ------
    ValueError
        When it is not a name.
    """
    try:
        return tuple(each.lower() for each in dns.name.from_text(name).labels if each)
    except dns.exception.DNSException as error:
        raise ValueError(f"{name} is not a name of DNS: {error}") from error


def text_of(name: Labels) -> str:
    """Return a name without its last dot; the root is a dot."""
    return dns.name.Name((*name, b"")).to_text(omit_final_dot=bool(name))


def query(number: int, name: Labels, kind: Kind, *, recursive: bool) -> bytes:
    """Return a query."""
    question = b"".join(bytes([len(each)]) + each for each in (*name, b""))
    flags = 0x0100 if recursive else 0
    head = HEADER.pack(number, flags, 1, 0, 0, 1)
    return head + question + struct.pack("!2H", kind, INTERNET) + EXTENSION


def read_response(message: bytes, sent: bytes) -> Response:
    """Read the response to a query.

    Raises
    ------
    ResponseError
        When it is malformed or of another query.
    """
    try:
        _, flags, questions, answers, authority, _ = HEADER.unpack_from(message)
        question = sent[HEADER.size : -len(EXTENSION)]
        end = HEADER.size + len(question)
        if not flags & 0x8000 or questions != 1 or message[:2] != sent[:2]:
            raise ResponseError("it is not a response to the query")
        if message[HEADER.size : end].lower() != question:
            raise ResponseError("it repeats another question")
        authoritative, truncated = bool(flags & 0x0400), bool(flags & 0x0200)
        usable = flags & 0xF in {SUCCESS, NO_SUCH_NAME}
        if truncated:
            return Response(authoritative, truncated, usable)
        found, end = read_records(message, end, min(answers, MOST_RECORDS))
        about: tuple[DnsRecord, ...] = ()
        if answers < MOST_RECORDS:
            about, _ = read_records(message, end, min(authority, MOST_RECORDS - answers))
    except (struct.error, IndexError, ValueError) as error:
        raise ResponseError(f"it is malformed: {error}") from error
    return Response(authoritative, truncated, usable, answers, found, about)


def read_records(message: bytes, at: int, count: int) -> tuple[tuple[DnsRecord, ...], int]:
    """Read records, and return those of known types and where the next one begins."""
    found = []
    for _ in range(count):
        owner, at = read_name(message, at)
        kind, network, _ttl, size = RECORD.unpack_from(message, at)
        begin = at + RECORD.size
        at = begin + size
        if at > len(message):
            raise ResponseError("a record is longer than the message")
        known = KINDS.get(kind) if network == INTERNET else None
        if known is not None:
            found.append(DnsRecord(owner, known, read_value(message, known, begin, at)))
    return tuple(found), at


def read_value(message: bytes, kind: Kind, begin: int, end: int) -> str:
    """Read what a record says."""
    if kind in NAMES:
        return text_of(read_name(message, begin)[0])
    if kind in ADDRESSES:
        if end - begin != ADDRESSES[kind]:
            raise ResponseError("an address has another length")
        return str(ip_address(message[begin:end]))
    texts = []
    while begin < end:
        begin, after = begin + 1, begin + 1 + message[begin]
        if after > end:
            raise ResponseError("a text is longer than its record")
        texts.append(message[begin:after])
        begin = after
    return b"".join(texts).decode("utf-8", "replace")


def read_name(message: bytes, at: int) -> tuple[Labels, int]:
    """Read a name, and return it and where what follows it begins."""
    labels: list[bytes] = []
    size, end = 1, 0
    for _ in range(MOST_STEPS):
        length = message[at]
        if length >= POINTER:
            end = end or at + 2
            at = (length & ~POINTER) << 8 | message[at + 1]
            continue
        if length == 0:
            return tuple(labels), end or at + 1
        size += length + 1
        if length > LONGEST_LABEL or size > LONGEST_NAME:
            break
        label = message[at + 1 : at + 1 + length]
        labels.append(label.lower())
        at += length + 1
    raise ResponseError("a name is too long")
