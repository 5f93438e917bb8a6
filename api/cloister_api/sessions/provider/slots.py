"""How many sign-ins wait for the provider at once; nobody has signed in for them yet."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cloister_api.sessions.provider.refusal import RefusalReason, SignInRefused

__all__ = ["SignInSlots"]


class SignInSlots:
    """The sign-ins that wait.

    Where there is no room, the one that has waited longest gives way, of the address that has the
    most: a sign-in that the provider completes takes a moment, and whoever sends many displaces
    their own.

    Parameters
    ----------
    most
        How many may wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[asyncio.Timeout, str] = {}

    @asynccontextmanager
    async def enter(self, address: str) -> AsyncIterator[None]:
        """Count a sign-in while the block runs.

        Parameters
        ----------
        address
            Where it comes from.

        Raises
        ------
        SignInRefused
            When it gave way to another one.
        """
        if len(self._waiting) >= self._most:
            self._displace()
        slot = asyncio.timeout(None)
        try:
            async with slot:
                self._waiting[slot] = address
                try:
                    yield
                finally:
                    self._waiting.pop(slot, None)
        except TimeoutError as error:
            if not slot.expired():
                raise
            raise SignInRefused(
                RefusalReason.BUSY, f"{self._most} sign-ins wait for the provider"
            ) from error

    def _displace(self) -> None:
        """End the oldest of the address that has the most."""
        waiting = Counter(self._waiting.values())
        most = max(waiting.values())
        oldest = next(each for each, address in self._waiting.items() if waiting[address] == most)
        del self._waiting[oldest]
        oldest.reschedule(asyncio.get_running_loop().time())
