"""Queries the authoritative servers of a zone, so that no cache delays or keeps a response.

Tenants name the zones: a server of one is queried only at a public address, like everything else
that a tenant makes Cloister call (`cloister_clients.address_guard`).
"""

import asyncio
from collections.abc import Iterable
from ipaddress import ip_address

from cloister_clients.address_guard import is_public
from cloister_clients.dns.messages import (
    MOST_RECORDS,
    DnsRecord,
    Kind,
    Labels,
    Response,
    labels_of,
    text_of,
)
from cloister_clients.dns.queries import DnsError, Resolver, Server, ask
from cloister_clients.dns.settings import DnsSettings

__all__ = ["AuthoritativeDns"]

MOST_SERVERS = 6
"""How many servers of a zone are resolved and queried: a zone may name thousands, of others."""
MOST_ADDRESSES = 2
"""How many addresses of a server are used, of each family."""
MOST_QUERIES = 64
"""Concurrent queries of a process, each of which is a socket."""
TOTAL = 4
"""Longest time of a whole lookup, in timeouts of one response."""


class AuthoritativeDns:
    """Looks records up at the servers that own them."""

    def __init__(self, settings: DnsSettings) -> None:
        self._settings = settings
        self._allowed = frozenset(settings.allow_private)
        self._queries = asyncio.Semaphore(MOST_QUERIES)
        own = [Server(each) for each in settings.resolvers]
        self._resolver = Resolver(own or None, settings.timeout_seconds)

    async def texts(self, name: str) -> tuple[str, ...]:
        """Return the values of the TXT records of a name, each joined to one text.

        Returns
        -------
        tuple[str, ...]
            Ordered; empty when the zone's servers report none.

        Raises
        ------
        DnsError
            When no server of the zone responded.
        """
        found = await self._ask(name, Kind.TXT)
        return tuple(sorted({each.value for each in found}))

    async def alias(self, name: str) -> tuple[str, ...]:
        """Return the targets of the CNAME record of a name, in lower case without the last dot.

        Returns
        -------
        tuple[str, ...]
            One, or several while the zone's servers differ; empty when there is none.

        Raises
        ------
        DnsError
            When no server of the zone responded.
        """
        found = await self._ask(name, Kind.CNAME)
        return tuple(sorted({each.value for each in found}))

    async def _ask(self, name: str, kind: Kind) -> list[DnsRecord]:
        """Return the records that any server of the zone has: a secondary may lag behind.

        Raises
        ------
        DnsError
            When no server responded in time, or there are too many records.
        """
        seconds = TOTAL * self._settings.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._ask_servers(name, labels_of(name), kind)
        except ValueError as error:
            raise DnsError(str(error)) from error
        except TimeoutError as error:
            raise DnsError(f"the lookup of {name} took longer than {seconds:g} s") from error

    async def _ask_servers(self, name: str, labels: Labels, kind: Kind) -> list[DnsRecord]:
        servers = (await self._servers(name, labels))[:MOST_SERVERS]
        answers = await asyncio.gather(*(self._query(each, labels, kind) for each in servers))
        responses = [each for each in answers if each is not None]
        if not responses:
            raise DnsError(f"no server of the zone of {name} responded: {', '.join(servers)}")
        if any(count > MOST_RECORDS for count, _ in responses):
            raise DnsError(
                f"{name} has more than {MOST_RECORDS} {kind.name} records; delete those that are "
                "not needed"
            )
        return [record for _, records in responses for record in records]

    async def _query(
        self, server: str, name: Labels, kind: Kind
    ) -> tuple[int, list[DnsRecord]] | None:
        """Query one server; None if it gave no authoritative response.

        Returns
        -------
        tuple or None
            How many records it has, and those that were read.
        """
        seconds = self._settings.timeout_seconds
        async with self._queries:
            found = await ask(Server(server), name, kind, recursive=False, seconds=seconds)
        if found is None or not (found.authoritative and found.usable):
            return None
        return found.count, [
            each for each in found.answers if each.kind is kind and each.owner == name
        ]

    async def _servers(self, name: str, labels: Labels) -> list[str]:
        """Find the addresses of the servers of the zone of a name.

        Raises
        ------
        DnsError
            When they cannot be found, or none may be called.
        """
        try:
            zone = await self._zone(labels)
            served = await self._resolve(zone, Kind.NS)
        except DnsError as error:
            raise DnsError(f"the servers of the zone of {name} cannot be found: {error}") from error
        hosts = sorted(each.value for each in served.answers if each.kind is Kind.NS)
        found = await asyncio.gather(*map(self._addresses, hosts[:MOST_SERVERS]))
        addresses = list(dict.fromkeys(address for each in found for address in each))
        callable_ones = [each for each in addresses if self._may_be_called(each)]
        if not callable_ones:
            shown = ", ".join(addresses or hosts[:MOST_SERVERS])
            raise DnsError(f"the zone {text_of(zone)} has no server at a public address ({shown})")
        return callable_ones

    async def _zone(self, name: Labels) -> Labels:
        """Find the zone of a name: the nearest name with a SOA record, itself or above it.

        Raises
        ------
        DnsError
            When there is none, or no resolver responds.
        """
        for above in range(len(name) + 1):
            nearest = name[above:]
            response = await self._resolve(nearest, Kind.SOA)
            if any(each.kind is Kind.SOA and each.owner == nearest for each in response.answers):
                return nearest
            for each in response.authority:
                if each.kind is Kind.SOA and is_above(each.owner, nearest):
                    return each.owner
        raise DnsError(
            "the resolver knows no zone, not even the root's; check the resolvers of the "
            "installation"
        )

    async def _addresses(self, host: str) -> Iterable[str]:
        """Resolve one server, in both families; one that has no address is passed over."""
        found: list[str] = []
        for kind in (Kind.A, Kind.AAAA):
            try:
                response = await self._resolve(labels_of(host), kind)
            except DnsError:
                continue
            values = [each.value for each in response.answers if each.kind is kind]
            found += values[:MOST_ADDRESSES]
        return found

    async def _resolve(self, name: Labels, kind: Kind) -> Response:
        """Query the recursive resolvers."""
        async with self._queries:
            return await self._resolver.resolve(name, kind)

    def _may_be_called(self, address: str) -> bool:
        return address in self._allowed or is_public(ip_address(address))


def is_above(zone: Labels, name: Labels) -> bool:
    """Return whether a name is below a zone, and not the zone itself."""
    return len(zone) < len(name) and name[len(name) - len(zone) :] == zone
