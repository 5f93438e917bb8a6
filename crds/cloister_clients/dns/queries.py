"""Queries of name servers: by a datagram, and by a stream when the response does not fit one."""

import asyncio
import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import dns.exception
import dns.resolver
from typing_extensions import override

from cloister_clients.dns.messages import (
    Kind,
    Labels,
    Response,
    ResponseError,
    query,
    read_response,
    text_of,
)

__all__ = ["DnsError", "Resolver", "Server", "ask", "system_servers"]

PORT = 53
ROUNDS = 2
"""How often each recursive resolver is asked."""


class DnsError(Exception):
    """No server reported whether a record is there; a later lookup may."""

    reason = "DnsUnavailable"
    """Word of the reasons table."""
    transient = True
    """Whether asking again may help."""

    @property
    def message(self) -> str:
        """Sentence for people."""
        return str(self)


@dataclass(frozen=True, slots=True)
class Server:
    """A name server."""

    address: str
    """Its address."""
    port: int = PORT
    """Its port."""


class Exchange(asyncio.DatagramProtocol):
    """Waits for the response to one query; what others send is passed over."""

    def __init__(self, sent: bytes) -> None:
        self._sent = sent
        self.response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the query."""
        cast("asyncio.DatagramTransport", transport).sendto(self._sent)

    @override
    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Read a response."""
        if self.response.done():
            return
        try:
            self.response.set_result(read_response(data, self._sent))
        except ResponseError:
            # Anybody may have sent it; the server's own may follow.
            return

    @override
    def error_received(self, exc: Exception) -> None:
        """End the wait: nobody listens there."""
        if not self.response.done():
            self.response.set_exception(exc)


async def ask(
    server: Server, name: Labels, kind: Kind, *, recursive: bool, seconds: float
) -> Response | None:
    """Query a server; None if it gave no response in time, or not one of DNS.

    Parameters
    ----------
    seconds
        Longest wait, for the datagram and then for the stream.
    """
    sent = query(secrets.randbelow(2**16), name, kind, recursive=recursive)
    try:
        async with asyncio.timeout(seconds):
            response = await by_datagram(server, sent)
        if response.truncated:
            async with asyncio.timeout(seconds):
                response = await by_stream(server, sent)
    except (OSError, EOFError, ResponseError):  # TimeoutError is an OSError
        return None
    return None if response.truncated else response


async def by_datagram(server: Server, sent: bytes) -> Response:
    """Query a server by UDP."""
    loop = asyncio.get_running_loop()
    transport, exchange = await loop.create_datagram_endpoint(
        lambda: Exchange(sent), remote_addr=(server.address, server.port)
    )
    try:
        return await exchange.response
    finally:
        transport.close()


async def by_stream(server: Server, sent: bytes) -> Response:
    """Query a server by TCP, where a message follows its length."""
    reader, writer = await asyncio.open_connection(server.address, server.port)
    try:
        writer.write(struct.pack("!H", len(sent)) + sent)
        (size,) = struct.unpack("!H", await reader.readexactly(2))
        return read_response(await reader.readexactly(size), sent)
    finally:
        writer.transport.abort()


def system_servers() -> tuple[Server, ...]:
    """Return the recursive resolvers of the system.

    Raises
    ------
    DnsError
        When it has none.
    """
    try:
        found = dns.resolver.Resolver().nameservers
    except (dns.exception.DNSException, OSError) as error:
        raise DnsError(f"the system has no resolver: {error}") from error
    return tuple(Server(each) for each in found if isinstance(each, str))


class Resolver:
    """Queries recursive resolvers, without a cache.

    Parameters
    ----------
    servers
        The resolvers; None means those of the system.
    """

    def __init__(self, servers: Sequence[Server] | None, seconds: float) -> None:
        self._servers = servers
        self._seconds = seconds

    async def resolve(self, name: Labels, kind: Kind) -> Response:
        """Return what the first resolver says that knows: the records, or that there are none.

        Raises
        ------
        DnsError
            When none does.
        """
        servers = system_servers() if self._servers is None else self._servers
        for server in [*servers] * ROUNDS:
            found = await ask(server, name, kind, recursive=True, seconds=self._seconds)
            if found is not None and found.usable:
                return found
        tried = ", ".join(each.address for each in servers)
        raise DnsError(f"no resolver responded for {text_of(name)} {kind.name} ({tried})")
