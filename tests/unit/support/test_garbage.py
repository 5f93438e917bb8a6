"""The check that finds transports and files which a test left to the garbage collector."""

import asyncio
import socket

from typing_extensions import override

from tests.support.garbage import left_open


def test_nothing_is_left_open_by_a_loop_that_closes_its_transports() -> None:
    ours, theirs = socket.socketpair()

    async def connect() -> None:
        _, writer = await asyncio.open_connection(sock=ours)
        writer.close()
        await writer.wait_closed()

    with theirs:
        asyncio.run(connect())
    assert left_open() == []


class Kept(asyncio.Protocol):
    """A protocol and its transport, which hold each other."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close the circle."""
        self.transport = transport


def test_a_transport_that_is_left_open_is_found_at_once() -> None:
    ours, theirs = socket.socketpair()

    async def connect() -> None:
        await asyncio.get_running_loop().create_connection(Kept, sock=ours)

    with theirs:
        asyncio.run(connect())
    assert any("unclosed transport" in each for each in left_open())
