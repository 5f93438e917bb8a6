"""Whose lookup is next. Pure: neither clock nor I/O; `Lane` acts on what is decided here."""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["FairQueue", "Shares"]

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Shares:
    """How many lookups of a lane run at once."""

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
        name
            The lookup.
        organization
            Who wants it.
        host
            Remote host that it queries; empty = none that is shared out.
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
            The lookup and the organization that it is counted for; None = none has room.
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
        """Take what waits for a host out of the queue of one organization, or of all.

        Returns
        -------
        list
            Lookups that nobody waits for any more.
        """
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
