"""A lane, where lookups of one sort wait.

Whose lookup is next and which slow hosts are skipped (circuit breaker) is decided without I/O.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from cachetools import LRUCache

from cloister_clients.clock import Clock
from cloister_clients.tracing.spans import SpanKind, span
from cloister_crds.backoff import backoff_delay

__all__ = ["CircuitBreaker", "FairQueue", "HostLeftAlone", "Lane", "Shares", "Turn"]

_TIMEOUTS = 2
"""Timeouts in a row after which a host is not queried for a while."""
_REMEMBERED = 4096
"""Circuits that are remembered at most; the least recently used are dropped first."""


@dataclass(slots=True)
class _Circuit:
    """How one host responded lately, to one organization or to all."""

    timeouts: int = 0
    """Timeouts in a row of one organization."""
    organizations: set[str] = field(default_factory=set)
    """Who met a timeout since the last response."""
    opened: int = 0
    """How often in a row it was opened."""
    until: datetime | None = None
    """Until when the host is not queried; None if the circuit is closed."""
    probing: bool = False
    """Whether the one lookup runs that may find the host responding again."""

    def trip(self, now: datetime) -> None:
        """Open the circuit of the host: 10 s, doubled after each failed probe, at most 5 min."""
        self.opened += 1
        self.until = now + backoff_delay(self.opened)
        self.probing = False


class CircuitBreaker:
    """The circuits of a lane: closed, open, or half-open with one lookup that probes."""

    def __init__(self) -> None:
        # The organization None stands for all together.
        self._circuits: LRUCache[tuple[str, str | None], _Circuit] = LRUCache(_REMEMBERED)

    def open_count(self, now: datetime) -> int:
        """Return how many circuits are open."""
        return sum(each.until is not None and each.until > now for each in self._circuits.values())

    def blocked_until(self, organization: str, host: str, now: datetime) -> datetime | None:
        """Return until when a host is not queried; None if it may be queried."""
        ends = [each.until for each in self._of(organization, host) if each.until is not None]
        return max((each for each in ends if each > now), default=None)

    def may_start(self, organization: str, host: str, now: datetime) -> bool:
        """Return whether a lookup may start: nothing is open, and nobody else probes."""
        circuits = self._of(organization, host)
        open_ = any(each.until is not None and each.until > now for each in circuits)
        return not open_ and not any(each.probing for each in circuits)

    def started(self, organization: str, host: str) -> None:
        """Note that a lookup started: where the circuit was open, it is the probe."""
        for each in self._of(organization, host):
            each.probing = each.until is not None

    def responded(self, organization: str, host: str) -> None:
        """Note that a host responded, whatever it said: its circuits are closed."""
        self._circuits.pop((host, organization), None)
        self._circuits.pop((host, None), None)

    def abandoned(self, organization: str, host: str) -> None:
        """Note that a lookup was cancelled: the next one probes."""
        for each in self._of(organization, host):
            each.probing = False

    def timed_out(self, organization: str, host: str, now: datetime) -> list[str | None]:
        """Note that a host did not respond in time.

        Returns
        -------
        list
            Whose circuit opened: an organization, None for that of all.
        """
        if not host:
            return []
        opened: list[str | None] = []
        for owner in (organization, None):
            circuit = self._circuits.setdefault((host, owner), _Circuit())
            circuit.timeouts += 1
            circuit.organizations.add(organization)
            witnesses = circuit.timeouts if owner else len(circuit.organizations)
            failed_probe = circuit.until is not None and circuit.probing
            if failed_probe or (circuit.until is None and witnesses >= _TIMEOUTS):
                circuit.trip(now)
                opened.append(owner)
        return opened

    def _of(self, organization: str, host: str) -> list[_Circuit]:
        """Return the circuits that a lookup depends on."""
        found = (self._circuits.get((host, owner)) for owner in (organization, None))
        return [each for each in found if each is not None]


T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Shares:
    """How many lookups of a lane run concurrently."""

    total: int
    """Of all organizations together."""
    per_organization: int
    """Of one organization."""
    per_host: int
    """At one remote host."""


@dataclass(slots=True)
class _Ticket:
    """A lookup that waits or runs."""

    host: str
    organizations: list[str] = field(default_factory=list)
    """Who wants it; the first one it is counted for."""


class FairQueue(Generic[T]):
    """Lookups that wait and run, with a share for each organization and each remote host.

    Organizations take turns, and so do the hosts of one organization; at one host the first that
    came is the first that starts. A lookup that several organizations want waits in the queue of
    each and starts when it is the turn of any: none waits behind the share of another one.
    """

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._tickets: dict[T, _Ticket] = {}
        self._queues: dict[str, dict[str, dict[T, None]]] = {}
        self._running: set[T] = set()
        self._by_organization: Counter[str] = Counter()
        self._by_host: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._tickets) - len(self._running)

    @property
    def running(self) -> int:
        """How many run."""
        return len(self._running)

    def add(self, name: T, organization: str, host: str) -> None:
        """Queue a lookup for an organization; another one may wait for it already.

        Parameters
        ----------
        host
            Remote host that it queries; empty means none that is shared out.
        """
        ticket = self._tickets.setdefault(name, _Ticket(host))
        if name in self._running or organization in ticket.organizations:
            return
        ticket.organizations.append(organization)
        self._queues.setdefault(organization, {}).setdefault(ticket.host, {})[name] = None

    def start(self, may_start: Callable[[str, str], bool]) -> tuple[T, str] | None:
        """Start the next lookup that has room.

        Parameters
        ----------
        may_start
            Returns whether an organization may query a host now.

        Returns
        -------
        tuple or None
            The lookup and the organization that it is counted for; None if none has room.
        """
        if len(self._running) >= self._shares.total:
            return None
        for organization, hosts in self._queues.items():
            if self._by_organization[organization] >= self._shares.per_organization:
                continue
            for host, names in hosts.items():
                full = host and self._by_host[host] >= self._shares.per_host
                if full or not may_start(organization, host):
                    continue
                name = next(iter(names))
                self._take(name, organization, host)
                return name, organization
        return None

    def finish(self, name: T) -> None:
        """Forget a lookup that ran or waits."""
        ticket = self._tickets.pop(name, None)
        if ticket is None:
            return
        if name in self._running:
            self._running.discard(name)
            self._count(ticket, -1)
        else:
            for organization in ticket.organizations:
                self._unqueue(name, organization, ticket.host)

    def withdraw(self, organization: str | None, host: str) -> list[T]:
        """Take what waits for a host out of the queue of one organization, or of all."""
        unwanted = []
        affected = list(self._queues) if organization is None else [organization]
        for each in affected:
            for name in list(self._queues.get(each, {}).get(host, ())):
                self._unqueue(name, each, host)
                ticket = self._tickets[name]
                ticket.organizations.remove(each)
                if not ticket.organizations:
                    del self._tickets[name]
                    unwanted.append(name)
        return unwanted

    def _take(self, name: T, organization: str, host: str) -> None:
        """Count a lookup as running, and let organization and host wait for their next turn."""
        ticket = self._tickets[name]
        for each in ticket.organizations:
            self._unqueue(name, each, host)
        ticket.organizations = [organization]
        self._running.add(name)
        self._count(ticket, +1)
        hosts = self._queues.pop(organization, None)
        if hosts is not None:
            self._queues[organization] = hosts
            names = hosts.pop(host, None)
            if names is not None:
                hosts[host] = names

    def _count(self, ticket: _Ticket, by: int) -> None:
        """Count a running lookup for its organization and its host."""
        organization = ticket.organizations[0]
        for counter, key in ((self._by_organization, organization), (self._by_host, ticket.host)):
            counter[key] += by
            if not counter[key]:
                del counter[key]

    def _unqueue(self, name: T, organization: str, host: str) -> None:
        """Remove a lookup from the queue of an organization."""
        hosts = self._queues[organization]
        del hosts[host][name]
        if not hosts[host]:
            del hosts[host]
        if not hosts:
            del self._queues[organization]


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
    """Runs a bounded number of lookups concurrently, in the order of `FairQueue`.

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
            Remote host that it queries; empty means none that is shared out.

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
        """Note how a host responded; lookups that wait for one whose circuit opened now fail."""
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
