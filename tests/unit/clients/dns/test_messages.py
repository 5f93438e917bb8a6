"""Responses of name servers: what is read of them, and that none costs much."""

import contextlib
import struct
import time

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister_clients.dns.messages import (
    MOST_RECORDS,
    PAYLOAD,
    DnsRecord,
    Kind,
    Response,
    ResponseError,
    labels_of,
    query,
    read_response,
    text_of,
)
from tests.support.builders.dns_messages import hostile_response, question

NAME = labels_of("_x.api.customer.test")
SENT = query(4711, NAME, Kind.TXT, recursive=False)


def response(*records: str, authority: tuple[str, ...] = (), flags: str = "QR AA") -> bytes:
    """Return the response of another implementation to the query."""
    message = dns.message.make_response(dns.message.from_wire(SENT))
    message.flags = dns.flags.from_text(flags)
    for section, texts in ((message.answer, records), (message.authority, authority)):
        for owner, ttl, network, kind, value in (text.split(" ", 4) for text in texts):
            section.append(dns.rrset.from_text(owner, int(ttl), network, kind, value))
    return message.to_wire()


def test_a_query_is_one_of_another_implementation() -> None:
    for recursive in (True, False):
        parsed = dns.message.from_wire(query(7, NAME, Kind.AAAA, recursive=recursive))
        assert (parsed.id, bool(parsed.flags & dns.flags.RD)) == (7, recursive)
        assert (parsed.edns, parsed.payload) == (0, PAYLOAD)
        assert parsed.question == [dns.rrset.from_text("_x.api.customer.test.", 0, "IN", "AAAA")]


def test_records_of_known_types_are_read() -> None:
    message = response(
        '_X.api.customer.test. 60 IN TXT "first" "sécond"',
        "_x.api.customer.test. 60 IN MX 10 mail.customer.test.",
        "_x.api.customer.test. 60 IN CNAME Target.DNS.example.",
        "ns.customer.test. 60 IN A 192.0.2.1",
        "ns.customer.test. 60 IN AAAA 2001:db8::1",
        authority=("customer.test. 60 IN SOA ns.customer.test. root. 1 2 3 4 5",),
    )
    server = labels_of("ns.customer.test")
    assert read_response(message, SENT) == Response(
        authoritative=True,
        truncated=False,
        usable=True,
        count=5,
        answers=(
            DnsRecord(NAME, Kind.TXT, "firstsécond"),
            DnsRecord(NAME, Kind.CNAME, "target.dns.example"),
            DnsRecord(server, Kind.A, "192.0.2.1"),
            DnsRecord(server, Kind.AAAA, "2001:db8::1"),
        ),
        authority=(DnsRecord(server[1:], Kind.SOA, "ns.customer.test"),),
    )


def test_codes_and_flags_are_read() -> None:
    assert read_response(response(flags="QR"), SENT) == Response(False, False, True)
    assert read_response(response(flags="QR AA TC"), SENT).truncated
    for code, usable in ((dns.rcode.NXDOMAIN, True), (dns.rcode.SERVFAIL, False)):
        message = dns.message.make_response(dns.message.from_wire(SENT))
        message.set_rcode(code)
        assert read_response(message.to_wire(), SENT).usable is usable


def test_the_names_of_a_response_come_back_as_text() -> None:
    for name in ("a.b", "_x.api.customer.test", r"a\.b.c", r"\000.x"):
        assert text_of(labels_of(name)) == name
    assert text_of(()) == "."
    for wrong in ("a..b", f"{'a' * 64}.b", "a." * 200):
        with pytest.raises(ValueError, match="is not a name"):
            labels_of(wrong)


def test_more_records_than_are_read_are_counted() -> None:
    texts = [f'_x.api.customer.test. 60 IN TXT "{number}"' for number in range(MOST_RECORDS + 1)]
    found = read_response(response(*texts, authority=("test. 60 IN NS ns.test.",)), SENT)
    assert (found.count, len(found.answers)) == (MOST_RECORDS + 1, MOST_RECORDS)
    assert found.authority == ()


@pytest.mark.attack("long-dns-response")
@pytest.mark.parametrize("shape", ["pointers", "names", "chain", "loop", "texts"])
def test_the_largest_response_costs_little(shape: str) -> None:
    """A library that makes a name of each took 14 s of the operator's event loop."""
    message = hostile_response(SENT, shape)
    assert len(message) > 60_000
    begun = time.thread_time()
    if shape in {"chain", "loop"}:
        with pytest.raises(ResponseError, match="a name is too long"):
            read_response(message, SENT)
    else:
        assert len(read_response(message, SENT).answers) > 0
    assert time.thread_time() - begun < 0.1  # 0.005 s.


def test_what_is_not_the_response_is_refused() -> None:
    good = response()
    for wrong in (
        b"",
        good[:11],
        SENT,
        b"\0\0" + good[2:],
        good[:12] + good[12:].replace(b"api", b"apo"),
        query(4711, NAME, Kind.CNAME, recursive=False),
    ):
        with pytest.raises(ResponseError):
            read_response(wrong, SENT)


@given(st.binary(max_size=200), st.integers(0, 3), st.integers(0, 3))
def test_any_response_is_read_or_refused(rest: bytes, answers: int, authority: int) -> None:
    head = struct.pack("!6H", 4711, 0x8400, 1, answers, authority, 0)
    with contextlib.suppress(ResponseError):
        read_response(head + question(SENT) + rest, SENT)
