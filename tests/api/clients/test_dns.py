"""The look-up of records, against a real authoritative name server."""

import asyncio
import contextlib
import os
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype
import dns.rrset
import dns.update
import pytest
from typing_extensions import override

from cloister_clients.dns import AuthoritativeDns, DnsError, DnsSettings
from tests.support.builders.dns_messages import hostile_response
from tests.support.servers.nameserver import NameServer, serve_zone

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="port 53 needs root")

ZONE = "customer.test"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    with serve_zone(tmp_path_factory.mktemp("knot"), ZONE) as served:
        yield served


@pytest.fixture
def client(server: NameServer) -> AuthoritativeDns:
    settings = DnsSettings(
        resolvers=(server.address,), allow_private=(server.address,), timeout_seconds=15
    )
    return AuthoritativeDns(settings)


@pytest.mark.spec("8.8")
async def test_records_are_read_as_they_are_now(
    server: NameServer, client: AuthoritativeDns
) -> None:
    name = f"api.{ZONE}"
    assert await client.texts(f"_x.{name}") == ()
    assert await client.alias(name) == ()
    server.put(f"_x.{name}", "TXT", '"first" "second"')
    server.put(name, "CNAME", "Target.DNS.example.")
    assert await client.texts(f"_x.{name}") == ("firstsecond",)
    assert await client.alias(name) == ("target.dns.example",)
    server.drop(f"_x.{name}", "TXT")
    assert await client.texts(f"_x.{name}") == ()


async def test_a_long_dns_response_uses_tcp(server: NameServer, client: AuthoritativeDns) -> None:
    words = " ".join(f'"{index:03}{"x" * 200}"' for index in range(20))
    server.put(f"long.{ZONE}", "TXT", words)
    (text,) = await client.texts(f"long.{ZONE}")
    assert len(text) == 20 * 203


async def test_another_record_of_the_name_is_not_a_dns_response(
    server: NameServer, client: AuthoritativeDns
) -> None:
    server.put(f"address.{ZONE}", "A", "192.0.2.1")
    assert await client.alias(f"address.{ZONE}") == ()
    assert await client.texts(f"address.{ZONE}") == ()


async def test_a_name_server_at_a_private_address_is_not_queried(server: NameServer) -> None:
    guarded = AuthoritativeDns(DnsSettings(resolvers=(server.address,)))
    with pytest.raises(DnsError, match="no server at a public address"):
        await guarded.texts(f"api.{ZONE}")


async def test_a_silent_name_server_is_an_error_and_not_absence(tmp_path: Path) -> None:
    with serve_zone(tmp_path, "silent.test") as server:
        patient, hasty = (
            AuthoritativeDns(
                DnsSettings(
                    resolvers=(server.address,),
                    allow_private=(server.address,),
                    timeout_seconds=seconds,
                )
            )
            for seconds in (30, 2)
        )
        assert await patient.texts("_x.api.silent.test") == ()
        server.stop()
        with pytest.raises(DnsError, match="cannot be found"):
            await hasty.texts("_x.api.silent.test")


async def test_a_name_without_servers_is_an_error(client: AuthoritativeDns) -> None:
    with pytest.raises(DnsError, match=r"api\.elsewhere\.test"):
        await client.texts("_x.api.elsewhere.test")


class Hostile(asyncio.DatagramProtocol):
    """A resolver and a zone's server in one, whose responses of some types fill a stream.

    Parameters
    ----------
    shape
        See `hostile_response`.
    """

    transport: asyncio.DatagramTransport

    def __init__(self, address: str, shape: str, hostile: set[str]) -> None:
        self._address = address
        self._shape = shape
        self._hostile = hostile
        self.streams = 0

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the socket."""
        self.transport = cast("asyncio.DatagramTransport", transport)

    @override
    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Send a short response, or that it would be a long one."""
        query = dns.message.from_wire(data)
        response, (asked,) = dns.message.make_response(query), query.question
        kind = dns.rdatatype.to_text(asked.rdtype)
        response.flags |= dns.flags.AA | (dns.flags.TC if kind in self._hostile else 0)
        values = {"SOA": "ns. root. 1 2 3 4 5", "NS": f"ns.{ZONE}.", "A": self._address}
        if kind in values and kind not in self._hostile:
            response.answer.append(dns.rrset.from_text(asked.name, 60, "IN", kind, values[kind]))
        self.transport.sendto(response.to_wire(), addr)

    async def stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send a long response."""
        self.streams += 1
        (size,) = struct.unpack("!H", await reader.readexactly(2))
        message = hostile_response(await reader.readexactly(size), self._shape)
        writer.write(struct.pack("!H", len(message)) + message)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()


@pytest.mark.attack("long-dns-response")
@pytest.mark.parametrize("hostile", [{"TXT"}, {"NS"}, {"SOA"}, {"A"}])
@pytest.mark.parametrize("shape", ["pointers", "names", "chain"])
async def test_a_hostile_response_does_not_occupy_the_event_loop(
    shape: str, hostile: set[str]
) -> None:
    address = f"127.53.{os.getpid() % 250}.54"
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: Hostile(address, shape, hostile), local_addr=(address, 53)
    )
    streams = await asyncio.start_server(server.stream, address, 53)
    settings = DnsSettings(resolvers=(address,), allow_private=(address,))
    begun = time.thread_time()
    try:
        with contextlib.suppress(DnsError):
            await AuthoritativeDns(settings).texts(f"_x.api.{ZONE}")
    finally:
        transport.close()
        streams.close()
        await streams.wait_closed()
    assert server.streams
    # CPU time of this thread, so that other work of the machine does not count; the server's own
    # part is in it. A library that makes objects of all records took 14 s for each response.
    assert time.thread_time() - begun < 1


class NothingKnown(asyncio.DatagramProtocol):
    """A resolver that knows nothing, not even the root."""

    transport: asyncio.DatagramTransport

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the socket."""
        self.transport = cast("asyncio.DatagramTransport", transport)

    @override
    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Send the response that there is no such name."""
        response = dns.message.make_response(dns.message.from_wire(data))
        response.set_rcode(dns.rcode.NXDOMAIN)
        self.transport.sendto(response.to_wire(), addr)


async def test_a_resolver_that_knows_no_zone_at_all_is_named() -> None:
    address = f"127.53.{os.getpid() % 250}.53"
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(NothingKnown, local_addr=(address, 53))
    try:
        client = AuthoritativeDns(DnsSettings(resolvers=(address,), timeout_seconds=5))
        with pytest.raises(DnsError, match="check the resolvers of the installation") as caught:
            await client.texts("_x.api.nowhere.test")
    finally:
        transport.close()
    assert "happen" not in str(caught.value)


async def test_a_zone_of_two_thousand_servers_makes_few_sockets(
    tmp_path: Path,
) -> None:
    opened: list[str] = []
    counting = True

    def count(event: str, _arguments: object) -> None:
        if counting and event == "socket.__new__":
            opened.append(event)

    with serve_zone(tmp_path, "wide.test") as server:
        update = dns.update.UpdateMessage("wide.test")
        for number in range(2_000):
            update.add("@", 3600, "NS", f"zz{number}")
        assert dns.query.tcp(update, server.address, timeout=10).rcode() == dns.rcode.NOERROR
        server.put("_x.api.wide.test", "TXT", '"here"')
        client = AuthoritativeDns(
            DnsSettings(resolvers=(server.address,), allow_private=(server.address,))
        )
        sys.addaudithook(count)
        try:
            assert await client.texts("_x.api.wide.test") == ("here",)
        finally:
            counting = False
    assert 1 < len(opened) < 64


async def test_a_name_of_too_many_records_is_refused(
    server: NameServer, client: AuthoritativeDns
) -> None:
    update = dns.update.UpdateMessage(ZONE)
    for number in range(65):
        update.add(f"_many.{ZONE}.", 3600, "TXT", f'"{number}"')
    assert dns.query.tcp(update, server.address, timeout=10).rcode() == dns.rcode.NOERROR
    with pytest.raises(DnsError, match=rf"_many\.{ZONE} has more than 64 TXT records"):
        await client.texts(f"_many.{ZONE}")
