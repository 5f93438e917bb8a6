"""A lane: where lookups of one sort wait until it is their turn."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from cloister_clients.clock import Clock
from cloister_clients.lanes.circuit_breaker import CircuitBreaker
from cloister_clients.lanes.fair_queue import FairQueue, Shares
from cloister_clients.tracing.spans import SpanKind, span

__all__ = ["HostLeftAlone", "Lane", "Turn"]


class HostLeftAlone(Exception):  # noqa: N818 - says what is so; nobody did anything wrong
    """A host did not respond in time lately, and is not queried yet."""

    def __init__(self, host: str, until: datetime) -> None:
        super().__init__(f"{host} did not respond in time")
        self.host = host
        """The host."""
        self.until = until
        """When it is queried again, in UTC."""


@dataclass(slots=True)
class Turn:
    """A lookup that runs."""

    timed_out: bool = False
    """To be set when the host did not respond in time."""


class Lane:
    """Lets lookups run, a bounded number at once, in the order of `FairQueue`.

    What the API server is asked, name servers, sources and registries have a lane each, so that
    none waits for slow servers of another sort.
    """

    def __init__(self, shares: Shares, clock: Clock) -> None:
        self._clock = clock
        self._queue: FairQueue[Hashable] = FairQueue(shares)
        self._breaker = CircuitBreaker()
        self._turns: dict[Hashable, asyncio.Future[None]] = {}
        self._counted: dict[Hashable, str] = {}

    @property
    def waiting(self) -> int:
        """How many lookups wait."""
        return self._queue.waiting

    @property
    def running(self) -> int:
        """How many lookups run."""
        return self._queue.running

    @property
    def open_circuits(self) -> int:
        """How many circuits are open."""
        return self._breaker.open_count(self._clock())

    def enter(self, name: Hashable, organization: str, host: str) -> None:
        """Queue a lookup; its `turn` follows, and `leave` in any case.

        Parameters
        ----------
        name
            The lookup; no other one of this name waits or runs.
        organization
            Who wants it; others may `join`.
        host
            Remote host that it queries; empty = none that is shared out.

        Raises
        ------
        HostLeftAlone
            When the host did not respond in time lately.
        """
        until = self._breaker.blocked_until(organization, host, self._clock())
        if until is not None:
            raise HostLeftAlone(host, until)
        self._turns[name] = asyncio.get_running_loop().create_future()
        self._queue.add(name, organization, host)
        self._advance()

    def join(self, name: Hashable, organization: str, host: str) -> None:
        """Have a lookup start as well when it is the turn of a further organization."""
        waiting = name in self._turns
        if waiting and self._breaker.blocked_until(organization, host, self._clock()) is None:
            self._queue.add(name, organization, host)
            self._advance()

    def leave(self, name: Hashable) -> None:
        """Forget a lookup that was entered; it may have been forgotten before."""
        self._turns.pop(name, None)
        self._counted.pop(name, None)
        self._queue.finish(name)
        self._advance()

    @asynccontextmanager
    async def turn(self, name: Hashable, host: str) -> AsyncIterator[Turn]:
        """Wait until it is the turn of a lookup that was entered.

        Raises
        ------
        HostLeftAlone
            When the host was found not to respond in time meanwhile.
        """
        where = {"server.address": host}
        try:
            with span("wait for a turn", inner=True, attributes=where):
                await self._turns[name]
            turn = Turn()
            with span("lookup", SpanKind.CLIENT, inner=True, attributes=where):
                yield turn
            self._record(turn, self._counted[name], host)
        except BaseException:
            # Cancelled, or an error that says nothing about the host.
            if name in self._counted:
                self._breaker.abandoned(self._counted[name], host)
            raise
        finally:
            self.leave(name)

    def _record(self, turn: Turn, organization: str, host: str) -> None:
        """Note how a host responded; what waits for one that is left alone now fails."""
        if not turn.timed_out:
            self._breaker.responded(organization, host)
            return
        now = self._clock()
        for owner in self._breaker.timed_out(organization, host, now):
            until = self._breaker.blocked_until(organization, host, now) or now
            for name in self._queue.withdraw(owner, host):
                waiting = self._turns[name]
                if not waiting.done():
                    waiting.set_exception(HostLeftAlone(host, until))

    def _advance(self) -> None:
        """Start what has room."""
        while (next_ := self._queue.start(self._may_start)) is not None:
            name, organization = next_
            self._counted[name] = organization
            # One that was cancelled while it waited gives its place back as soon as it runs.
            if not self._turns[name].done():
                self._turns[name].set_result(None)

    def _may_start(self, organization: str, host: str) -> bool:
        """Return whether a host may be queried now, and note that it is."""
        may = self._breaker.may_start(organization, host, self._clock())
        if may:
            self._breaker.started(organization, host)
        return may
