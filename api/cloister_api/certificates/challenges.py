"""TXT records for DNS-01 (RFC 8555, 8.4), written by dynamic updates (RFC 2136) with TSIG.

Only the zones of the settings are written. The records of a name in one of them are in that zone;
for any other name its owner points `_acme-challenge.<name>` by a CNAME at a name in the first zone,
once.
"""

import asyncio
import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

import dns.asyncquery
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
import dns.tsig
import dns.tsigkeyring
import dns.update

from cloister_api.certificates.authority import AuthorityError
from cloister_api.certificates.settings import ChallengeDnsSettings
from cloister_clients.dns import DnsError, Kind, Resolver, Server, labels_of
from cloister_crds.names import challenge_name

PREFIX = "_acme-challenge"
TIMEOUT = 10.0
"""Seconds for one query or update."""
RESOLVER_SECONDS = 2.5
"""Seconds of one resolver, within which another is queried."""
EVERY = 1.0
"""Seconds between two queries whether a record is served."""


class ChallengeError(Exception):
    """A record cannot be written or is not served; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What proves control of a name."""

    name: str
    """Host name."""
    value: str
    """Content of the TXT record."""
    label: str = ""
    """Label of the name that the owner of a custom domain points at, from the Domain's status."""


@dataclass(frozen=True, slots=True)
class TxtRecord:
    """A TXT record in one of the zones of the settings."""

    zone: dns.name.Name
    """Zone that it is in."""
    owner: dns.name.Name
    """Its name."""
    value: str
    """Its content."""


class ChallengeRecords:
    """Writes and removes the records."""

    def __init__(self, settings: ChallengeDnsSettings) -> None:
        """Read the key of the updates.

        Raises
        ------
        AuthorityError
            When the key's file cannot be used.
        """
        self._settings = settings
        self._zones = [dns.name.from_text(zone) for zone in settings.zones]
        self._keyring = keyring_of(settings)

    async def publish(self, proofs: Sequence[Proof]) -> None:
        """Write the records, and wait until every name server of the settings serves them.

        Raises
        ------
        ChallengeError
            When one cannot be written, or is not served in time.
        """
        records = [await self._record(proof) for proof in proofs]
        for record in records:
            update = self._update(record)
            update.add(record.owner, self._settings.ttl, "TXT", quoted(record.value))
            await self._send(update, record)
        servers = self._settings.check_servers or (self._settings.server,)
        await asyncio.gather(
            *(self._served(record, server) for record in records for server in servers)
        )

    async def withdraw(self, proofs: Sequence[Proof]) -> None:
        """Remove the records; one that does not exist is not an error.

        Raises
        ------
        ChallengeError
            When one cannot be removed.
        """
        for proof in proofs:
            record = await self._record(proof)
            update = self._update(record)
            update.delete(record.owner, "TXT", quoted(record.value))
            await self._send(update, record)

    async def _record(self, proof: Proof) -> TxtRecord:
        """Return the record of a proof.

        Raises
        ------
        ChallengeError
            When the name is in none of the zones and its CNAME does not point into one.
        """
        owner = dns.name.from_text(f"{PREFIX}.{proof.name}")
        zone = self._zone_of(owner)
        if zone is not None:
            return TxtRecord(zone, owner, proof.value)
        if not proof.label:
            raise ChallengeError(
                f"{proof.name}: the status of its Domain has no challengeLabel yet; see that the "
                "operator runs, in the release of the API"
            )
        target = dns.name.from_text(challenge_name(proof.label), self._zones[0])
        found = await self._alias(owner)
        if found != target:
            actual = f"it points to {found}" if found else "there is none"
            raise ChallengeError(
                f"{proof.name}: its owner must add the record "
                f"{owner.to_text(omit_final_dot=True)} CNAME {target.to_text()} ({actual})"
            )
        return TxtRecord(self._zones[0], target, proof.value)

    def _zone_of(self, owner: dns.name.Name) -> dns.name.Name | None:
        """Return the most specific of the zones that a name is in; None if it is in none."""
        zones = [zone for zone in self._zones if owner.is_subdomain(zone)]
        return max(zones, key=len, default=None)

    async def _alias(self, owner: dns.name.Name) -> dns.name.Name | None:
        """Return the target of a CNAME; None if there is no CNAME.

        Raises
        ------
        ChallengeError
            When no name server answers.
        """
        own = [Server(*split(server)) for server in self._settings.resolvers]
        resolver, name = Resolver(own or None, RESOLVER_SECONDS), labels_of(owner.to_text())
        try:
            async with asyncio.timeout(TIMEOUT):
                response = await resolver.resolve(name, Kind.CNAME)
        except (DnsError, TimeoutError) as error:
            raise ChallengeError(f"{owner}: no name server answers ({error})") from error
        for each in response.answers:
            if each.kind is Kind.CNAME and each.owner == name:
                return dns.name.from_text(each.value)
        return None

    def _update(self, record: TxtRecord) -> dns.update.UpdateMessage:
        """Return an empty update of a record's zone."""
        return dns.update.UpdateMessage(
            record.zone,
            keyring=self._keyring,
            keyname=dns.name.from_text(self._settings.key_name),
            keyalgorithm=self._settings.key_algorithm,
        )

    async def _send(self, update: dns.update.UpdateMessage, record: TxtRecord) -> None:
        """Send an update by TCP.

        Raises
        ------
        ChallengeError
            When the server refuses or does not respond.
        """
        address, port = split(self._settings.server)
        where = f"the update of {record.zone} at {self._settings.server}"
        try:
            response = await dns.asyncquery.tcp(update, address, timeout=TIMEOUT, port=port)
        except (OSError, EOFError, dns.exception.DNSException) as error:
            reason = str(error) or type(error).__name__
            raise ChallengeError(f"{where} failed: {reason}") from error
        if response.rcode() != dns.rcode.NOERROR:
            code = dns.rcode.to_text(response.rcode())
            raise ChallengeError(
                f"{where} was refused ({code}); check zone, key and permission of the update"
            )

    async def _served(self, record: TxtRecord, server: str) -> None:
        """Wait until a server serves a record.

        Raises
        ------
        ChallengeError
            When it does not in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.served_within_seconds
        while not await self._serves(record, server):
            if loop.time() > deadline:
                raise ChallengeError(
                    f"{record.owner} was written but {server} does not serve it within "
                    f"{self._settings.served_within_seconds} s"
                )
            await asyncio.sleep(EVERY)

    async def _serves(self, record: TxtRecord, server: str) -> bool:
        """Return whether a server serves a record now; False if it does not respond."""
        address, port = split(server)
        query = dns.message.make_query(record.owner, dns.rdatatype.TXT)
        query.flags &= ~dns.flags.RD
        try:
            response = await dns.asyncquery.tcp(query, address, timeout=TIMEOUT, port=port)
        except (OSError, EOFError, dns.exception.DNSException):
            return False
        return any(
            record.value.encode() in data.strings
            for rrset in response.answer
            if rrset.rdtype == dns.rdatatype.TXT
            for data in rrset
        )


def keyring_of(settings: ChallengeDnsSettings) -> dict[dns.name.Name, dns.tsig.Key]:
    """Read the key of the updates.

    Raises
    ------
    AuthorityError
        When its file cannot be read or does not hold base64.
    """
    try:
        text = settings.key_file.read_text(encoding="ascii").strip()
        secret = base64.b64decode(text, validate=True)
    except (OSError, UnicodeDecodeError) as error:
        raise AuthorityError(f"{settings.key_file}: {error}") from error
    except binascii.Error as error:
        raise AuthorityError(f"{settings.key_file} does not hold a TSIG key in base64") from error
    name = dns.name.from_text(settings.key_name)
    algorithm = dns.name.from_text(settings.key_algorithm)
    return {name: dns.tsig.Key(name, secret, algorithm)}


def split(server: str) -> tuple[str, int]:
    """Return address and port of ``address:port``."""
    address, _, port = server.rpartition(":")
    return address.strip("[]"), int(port)


def quoted(value: str) -> str:
    """Write a value of base64 as the content of a TXT record."""
    return f'"{value}"'
