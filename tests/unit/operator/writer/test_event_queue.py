"""Events on their way to the server."""

import asyncio
from typing import Any

from cloister_operator.writer import MOST, EventQueue


def event(number: int, kind: str = "Normal") -> dict[str, Any]:
    return {"type": kind, "number": number}


class Server:
    """Takes Events once it may."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.seen: list[int] = []
        self.busy = False

    async def send(self, body: dict[str, Any]) -> None:
        """Take one Event."""
        await self.open.wait()
        self.seen.append(body["number"])

    def queue(self) -> EventQueue:
        """Make a queue to it."""
        return EventQueue(self.send, busy=lambda: self.busy)

    async def settled(self, count: int) -> None:
        """Wait for so many Events."""
        async with asyncio.timeout(5):
            while len(self.seen) < count:  # noqa: ASYNC110 - the loop runs only what is ready
                await asyncio.sleep(0)


async def test_a_server_that_hangs_holds_nobody_up_and_order_is_kept() -> None:
    server = Server()
    queue = server.queue()
    for number in range(3):
        queue.add(event(number))
    assert server.seen == []
    server.open.set()
    await server.settled(3)
    queue.add(event(3))
    await server.settled(4)
    assert server.seen == [0, 1, 2, 3]
    await queue.aclose()


async def test_while_work_waits_only_warnings_are_posted() -> None:
    server = Server()
    server.open.set()
    server.busy = True
    queue = server.queue()
    queue.add(event(1))
    queue.add(event(2, "Warning"))
    await server.settled(1)
    assert server.seen == [2]
    await queue.aclose()


async def test_what_waits_is_bounded_and_dropped_at_the_end() -> None:
    server = Server()
    queue = server.queue()
    for number in range(3 * MOST):
        queue.add(event(number, "Warning"))
    await queue.aclose()
    server.open.set()
    await asyncio.sleep(0)
    assert server.seen == []
    queue.add(event(0))
    await server.settled(1)
    for number in range(3 * MOST):
        queue.add(event(number))
    await server.settled(1 + MOST)
    assert len(server.seen) == 1 + MOST
    await queue.aclose()
