"""The check that finds transports and files which a test left to the garbage collector."""

import asyncio
import contextlib
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from typing_extensions import override

from tests.support.garbage import left_open, pytest_runtest_teardown


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


def leave_open() -> Kept:
    """Return the protocol of a transport that nobody closed."""
    ours, theirs = socket.socketpair()

    async def connect() -> Kept:
        return (await asyncio.get_running_loop().create_connection(Kept, sock=ours))[1]

    with theirs:
        return asyncio.run(connect())


def test_a_transport_that_is_left_open_is_found_at_once() -> None:
    leave_open()
    assert any("unclosed transport" in each for each in left_open())


def end(item: pytest.Item, following: pytest.Item | None) -> None:
    """End a test as pytest does."""
    torn_down = pytest_runtest_teardown(item, following)
    next(torn_down)
    with contextlib.suppress(StopIteration):
        next(torn_down)


def test_what_outlived_its_module_is_found_by_the_last_test(request: pytest.FixtureRequest) -> None:
    item: pytest.Item = request.node
    kept = [leave_open()]
    end(item, cast("pytest.Item", SimpleNamespace(path=Path("test_another_module.py"))))
    kept.clear()
    assert left_open() == []
    with pytest.raises(pytest.fail.Exception, match="unclosed transport"):
        end(item, None)
