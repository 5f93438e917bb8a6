"""Queries the authoritative servers of a zone, so that no cache delays or keeps a response.

Tenants name the zones: a server of one is queried only at a public address, like everything else
that a tenant makes Cloister call (`cloister_clients.address_guard`).
"""

import asyncio
from collections.abc import Iterable
from ipaddress import ip_address

import dns.asyncquery
import dns.asyncresolver
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.resolver
from dns.rdtypes.ANY.CNAME import CNAME
from dns.rdtypes.ANY.TXT import TXT

from cloister_clients.address_guard import is_public
from cloister_clients.dns.settings import DnsSettings

__all__ = ["AuthoritativeDns", "DnsError"]

MOST_SERVERS = 6
"""How many servers of a zone are resolved and queried: a zone may name thousands, of others."""
MOST_ADDRESSES = 2
"""How many addresses of a server are used, of each family."""
MOST_RECORDS = 64
"""How many records a name may have."""
MOST_QUERIES = 64
"""Queries of a process at once, each of which is a socket."""
TOTAL = 4
"""Longest time of a whole lookup, in timeouts of one response."""
PAYLOAD = 1232
"""Largest response by UDP in bytes (DNS flag day 2020); larger ones use TCP."""


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


class AuthoritativeDns:
    """Looks records up at the servers that own them."""

    def __init__(self, settings: DnsSettings) -> None:
        self._settings = settings
        self._allowed = frozenset(settings.allow_private)
        self._queries = asyncio.Semaphore(MOST_QUERIES)

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
        found = await self._ask(name, dns.rdatatype.TXT)
        return tuple(
            sorted(
                {
                    b"".join(each.strings).decode("utf-8", "replace")
                    for each in found
                    if isinstance(each, TXT)
                }
            )
        )

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
        found = await self._ask(name, dns.rdatatype.CNAME)
        targets = (each.target for each in found if isinstance(each, CNAME))
        return tuple(sorted({each.to_text(omit_final_dot=True).lower() for each in targets}))

    async def _ask(self, name: str, kind: dns.rdatatype.RdataType) -> list[object]:
        """Return the records that any server of the zone has: a secondary may lag behind.

        Raises
        ------
        DnsError
            When no server responded in time, or there are too many records.
        """
        seconds = TOTAL * self._settings.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._ask_servers(name, kind)
        except TimeoutError as error:
            raise DnsError(f"the lookup of {name} took longer than {seconds:g} s") from error

    async def _ask_servers(self, name: str, kind: dns.rdatatype.RdataType) -> list[object]:
        servers = (await self._servers(name))[:MOST_SERVERS]
        answers = await asyncio.gather(*(self._query(each, name, kind) for each in servers))
        responses = [each for each in answers if each is not None]
        if not responses:
            raise DnsError(f"no server of the zone of {name} responded: {', '.join(servers)}")
        if any(len(each) > MOST_RECORDS for each in responses):
            raise DnsError(
                f"{name} has more than {MOST_RECORDS} {kind.name} records; delete those that are "
                "not needed"
            )
        return [record for response in responses for record in response]

    async def _query(
        self, server: str, name: str, kind: dns.rdatatype.RdataType
    ) -> list[object] | None:
        """Query one server; None = it gave no authoritative response."""
        query = dns.message.make_query(name, kind, use_edns=0, payload=PAYLOAD)
        query.flags &= ~dns.flags.RD
        try:
            async with self._queries:
                answer, _ = await dns.asyncquery.udp_with_fallback(
                    query, server, timeout=self._settings.timeout_seconds
                )
        except (dns.exception.DNSException, OSError, EOFError):
            return None
        if not answer.flags & dns.flags.AA:
            return None
        if answer.rcode() not in {dns.rcode.NOERROR, dns.rcode.NXDOMAIN}:
            return None
        owner = dns.name.from_text(name)
        return [
            record
            for rrset in answer.answer
            if rrset.rdtype == kind and rrset.name == owner
            for record in rrset
        ]

    async def _servers(self, name: str) -> list[str]:
        """Find the addresses of the servers of the zone of a name."""
        resolver = self._resolver()
        try:
            async with self._queries:
                zone = await dns.asyncresolver.zone_for_name(name, resolver=resolver)
                served = await resolver.resolve(zone, dns.rdatatype.NS)
        except dns.resolver.NoRootSOA as error:
            raise DnsError(
                f"the servers of the zone of {name} cannot be found: the resolver knows no zone, "
                "not even the root's; check the resolvers of the installation"
            ) from error
        except (dns.exception.DNSException, OSError) as error:
            raise DnsError(f"the servers of the zone of {name} cannot be found: {error}") from error
        hosts = sorted(each.target.to_text() for each in served)[:MOST_SERVERS]
        found = await asyncio.gather(*(self._addresses(resolver, each) for each in hosts))
        addresses = list(dict.fromkeys(address for each in found for address in each))
        callable_ones = [each for each in addresses if self._may_be_called(each)]
        if not callable_ones:
            shown = ", ".join(addresses or hosts)
            raise DnsError(
                f"the zone {zone.to_text(omit_final_dot=True)} has no server at a public address "
                f"({shown})"
            )
        return callable_ones

    async def _addresses(self, resolver: dns.asyncresolver.Resolver, host: str) -> Iterable[str]:
        """Resolve one server, in both families; one that has no address is passed over."""
        found: list[str] = []
        for kind in (dns.rdatatype.A, dns.rdatatype.AAAA):
            try:
                async with self._queries:
                    answer = await resolver.resolve(host, kind)
            except (dns.exception.DNSException, OSError):
                continue
            found += [each.address for each in answer][:MOST_ADDRESSES]
        return found

    def _may_be_called(self, address: str) -> bool:
        return address in self._allowed or is_public(ip_address(address))

    def _resolver(self) -> dns.asyncresolver.Resolver:
        """Build the recursive resolver, without a cache."""
        own = self._settings.resolvers
        resolver = dns.asyncresolver.Resolver(configure=not own)
        if own:
            resolver.nameservers = list(own)
        resolver.timeout = self._settings.timeout_seconds
        resolver.lifetime = 2 * self._settings.timeout_seconds
        return resolver
