"""Events on their way to the server: in the background, best effort, and few at a time."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

__all__ = ["EventQueue"]

MOST = 64
"""Events that wait at most; further ones are dropped."""

Event = dict[str, Any]


class EventQueue:
    """Sends Events one after the other, without holding up who records them."""

    def __init__(
        self, send: Callable[[Event], Awaitable[None]], *, busy: Callable[[], bool]
    ) -> None:
        """Prepare.

        Parameters
        ----------
        send
            Sends one Event; it raises nothing that is not a defect.
        busy
            Returns whether other work waits: Events about what is well are dropped then.
        """
        self._send = send
        self._busy = busy
        self._waiting: deque[Event] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, event: Event) -> None:
        """Have an Event sent; a Normal one only while nothing more important waits."""
        if len(self._waiting) >= MOST or (event["type"] == "Normal" and self._busy()):
            return
        self._waiting.append(event)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="events")

    async def aclose(self) -> None:
        """Drop what waits."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while self._waiting:
            await self._send(self._waiting.popleft())
