"""Responses of a hostile name server, as long as a message of DNS may be."""

import struct

__all__ = ["hostile_response", "question"]

LENGTH = 65_535
NAME_AT = 12
NS, OTHER, TXT = 2, 15, 16


def hostile_response(sent: bytes, shape: str) -> bytes:
    """Return a response to a query, whose records cost much to read.

    Parameters
    ----------
    shape
        ``pointers``: thousands of records whose names are a pointer to one of 126 labels;
        ``names``: records of such names; ``chain``: names of pointers alone; ``loop``: a name that
        ends in itself; ``texts``: texts of no letters.
    """
    at = NAME_AT + len(question(sent))
    deep = b"\x01a" * 126 + b"\0"
    if shape == "pointers":
        first = record(deep, NS, pointer(at))
        return message(sent, first, record(pointer(at), NS, pointer(at)))
    if shape == "names":
        return message(sent, b"", record(deep, NS, deep))
    if shape == "loop":
        return message(sent, record(pointer(at), NS, pointer(at)), b"\0" * 12)
    if shape == "texts":
        return message(sent, b"", record(pointer(NAME_AT), TXT, b"\0" * 900))
    # Each pointer leads to the one before it, and the first one to the root.
    links = b"".join(pointer(at + 9 + 2 * number) for number in range(1, 8000))
    chain = record(b"\0", OTHER, pointer(at) + links)
    return message(sent, chain, record(pointer(at + len(chain) - 2), NS, b"\0"))


def message(sent: bytes, first: bytes, each: bytes) -> bytes:
    """Return a response with a record, and as many of another as there is room for."""
    asked = question(sent)
    count = (LENGTH - NAME_AT - len(asked) - len(first)) // len(each)
    head = sent[:2] + struct.pack("!5H", 0x8400, 1, count + bool(first), 0, 0)
    return head + asked + first + each * count


def question(sent: bytes) -> bytes:
    """Return the question of a query."""
    at = NAME_AT
    while sent[at]:
        at += sent[at] + 1
    return sent[NAME_AT : at + 5]


def record(owner: bytes, kind: int, data: bytes) -> bytes:
    """Return a record."""
    return owner + struct.pack("!HHIH", kind, 1, 60, len(data)) + data


def pointer(at: int) -> bytes:
    """Return a name that is the one at a place of the message."""
    return struct.pack("!H", 0xC000 | min(at, 0x3FFF))
