"""The key check of the inference path, from memory, kept current by change counters."""

import asyncio
import hmac
from collections.abc import Collection
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from typing_extensions import override

from cloister_api.auth.key_cache import KeyCache
from cloister_api.auth.token_bucket import RateLimit, UnknownKeyLimit, consume
from cloister_api.cache import BY_EARLIER_LABEL, BY_HOSTNAME, BY_LABEL, BY_NAMESPACE, ClusterCache
from cloister_api.errors import ApiError
from cloister_api.ledger.keys.api_keys import ApiKeys
from cloister_api.ledger.keys.key_material import REGULAR_PREFIX, KeySealer, well_formed
from cloister_api.ledger.leases import BEAT_SECONDS, Replicas
from cloister_api.ledger.tables import API_KEYS, KEY_TOTALS, SEQUENCES
from cloister_clients.clock import Clock
from cloister_clients.kube import ReflectedObject
from cloister_crds.kinds import Organization
from cloister_crds.lifecycle.admission.limits import billing_of


class HostnameOwners:
    """Owners of the host names of the installation."""

    def __init__(self, cache: ClusterCache, containers_domain: str) -> None:
        self._cache = cache
        self._suffix = f".{containers_domain}"

    def organization(self, slug: str) -> Organization | None:
        """Return the Organization of a slug; None if there is none."""
        entry = self._cache.organizations.get(slug)
        return None if entry is None else entry.value

    def owner(self, host: str) -> Organization | None:
        """Return the Organization that serves a host name; None if none does, or it is not clear.

        Parameters
        ----------
        host
            A host name, with or without port, in any case.
        """
        name = host.partition(":")[0].rstrip(".").lower()
        organizations = self._cache.organizations
        if name.endswith(self._suffix):
            label = name.removesuffix(self._suffix).rpartition(".")[2]
            found = organizations.by_index(BY_LABEL, label)
            return oldest(found or organizations.by_index(BY_EARLIER_LABEL, label))
        namespace = self._namespace(name)
        return oldest(organizations.by_index(BY_NAMESPACE, namespace)) if namespace else None

    def _namespace(self, name: str) -> str:
        """Return the namespace of the Container that has a custom domain; empty if none has it."""
        claim = self._cache.claims.get(name)
        if claim is not None:
            return claim.value.spec.holder.namespace
        enclaves = self._cache.enclaves.by_index(BY_HOSTNAME, name)
        namespaces = {entry.namespace for entry in enclaves}
        return namespaces.pop() if len(namespaces) == 1 else ""


def oldest(found: Collection[ReflectedObject[Organization]]) -> Organization | None:
    """Return the Organization that was first; None if there is none."""
    if len(found) == 1:
        return next(iter(found)).value
    return min((entry.value for entry in found), key=creation_order, default=None)


def creation_order(organization: Organization) -> tuple[str, str]:
    """Return the sort key of Organizations: creation, then uid."""
    created = organization.metadata.creation_timestamp
    return (created.isoformat() if created else "", organization.metadata.uid)


UNKNOWN_KEY = ApiError(401, "UNAUTHORIZED", "invalid, expired or disabled API key")
"""One response for all of them: it must not reveal which keys exist."""
FOREIGN = ApiError(403, "FORBIDDEN", "this API key may not be used at this domain")
UNPAID = ApiError(
    402, "PAYMENT_REQUIRED", "the organization of this API key has no active token billing"
)
EXHAUSTED = ApiError(
    402,
    "PAYMENT_REQUIRED",
    "this API key has used up its max_tokens; raise the cap or use another key",
)


@dataclass(slots=True)
class CachedApiKey:
    """A key that is not deleted, in memory."""

    id: int
    """Number of the record."""
    index: bytes = field(repr=False)
    """HMAC of the value."""
    organization: str
    """Slug of the organization."""
    organization_id: str
    """Identifier of that Organization."""
    disabled: bool
    """Whether it was switched off."""
    expires_at: float | None
    """Unix time when it expires; None if never."""
    max_tokens: int | None
    """Cap; None means no cap."""
    used: int = 0
    """Tokens that were reported for it."""
    tokens: float = -1.0
    """Checks that its token bucket still allows in one burst; negative if it was not checked
    yet."""
    refilled_at: float = 0.0
    """Monotonic time that `tokens` was computed for."""


def judge(
    key: CachedApiKey,
    organization: Organization | None,
    places: tuple[Organization | None, ...],
    now: float,
) -> ApiError | None:
    """Decide whether a key may be used.

    Parameters
    ----------
    organization
        The Organization of the key's slug; None if there is none.
    places
        For each domain that was reported, the Organization that serves it; None if none does.

    Returns
    -------
    ApiError or None
        401, then 403, then 402 (spec 25.4); None if it may be used.
    """
    expired = key.expires_at is not None and key.expires_at <= now
    if organization is None or organization.identifier != key.organization_id:
        return UNKNOWN_KEY
    if key.disabled or expired:
        return UNKNOWN_KEY
    if not all(admits(place, organization) for place in places):
        return FOREIGN
    if not billing_of(organization).token_billing:
        return UNPAID
    if key.max_tokens is not None and key.used >= key.max_tokens:
        return EXHAUSTED
    return None


def admits(place: Organization | None, organization: Organization) -> bool:
    """Return whether the server of a domain accepts keys of an organization.

    Parameters
    ----------
    place
        The Organization that serves the domain; None if none does.
    """
    if place is None:
        return False
    same = place.metadata.name == organization.metadata.name
    return same or place.spec.entitlements.public_inference


class ApiKeyCache(KeyCache[CachedApiKey]):
    """Regular keys; of a change only the keys that it changed are read."""

    def __init__(
        self,
        engine: AsyncEngine,
        material: KeySealer,
        hosts: HostnameOwners,
        clock: Clock,
        replicas: Replicas,
        rate: RateLimit | None,
        unknown: UnknownKeyLimit,
    ) -> None:
        super().__init__(material, unknown, ApiKeys(engine, material).used)
        self._periodic.insert(0, (BEAT_SECONDS, self.beat))
        self._engine = engine
        self._hosts = hosts
        self._clock = clock
        self._replicas = replicas
        self._whole_rate = rate
        self._rate = rate
        self.facades = 1
        """How many replicas run; this one is among them."""
        self._by_id: dict[int, CachedApiKey] = {}
        self._seen = {"api_keys": -1, "usage": -1}

    async def check(self, value: str, domain: str | None, requested_host: str | None) -> None:
        """Check that a key may be used now.

        Parameters
        ----------
        value
            The key as the client sent it.
        domain
            Host name that the enclave serves; None if not reported.
        requested_host
            Host name that the client requested; None if not reported. One that no organization
            here serves is a proxy's and is ignored.

        Raises
        ------
        ApiError
            401, 402, 403 or 429 when it may not.
        """
        key = await self._find(value)
        places = () if domain is None else (self._hosts.owner(domain),)
        # A proxy may have another name; only one that an organization serves limits the key.
        if requested_host is not None and requested_host != domain:
            place = self._hosts.owner(requested_host)
            places = places if place is None else (*places, place)
        now = self._clock()
        refused = judge(key, self._hosts.organization(key.organization), places, now.timestamp())
        if refused is not None:
            raise refused
        if self._rate is not None:
            wait = consume(key, self._rate, asyncio.get_running_loop().time())
            if wait:
                raise rate_limited(wait)
        self._uses[key.id] = now

    async def _find(self, value: str) -> CachedApiKey:
        if not well_formed(value, REGULAR_PREFIX):
            raise UNKNOWN_KEY
        index = self.index(value)
        key = await self.find(index)
        # The lookup compared hashes of secrets, not secrets; this comparison takes constant time.
        if key is None or not hmac.compare_digest(key.index, index):
            raise UNKNOWN_KEY
        return key

    @override
    async def _read(self) -> None:
        async with self._engine.connect() as connection:
            rows = (await connection.execute(select(SEQUENCES.c.name, SEQUENCES.c.value))).all()
            present = {row.name: row.value for row in rows}
            if present["api_keys"] != self._seen["api_keys"]:
                await self._read_keys(connection)
            if present["usage"] != self._seen["usage"]:
                await self._read_totals(connection)
        self._seen = present

    async def _read_keys(self, connection: AsyncConnection) -> None:
        names = ("id", "key_index", "organization", "organization_id", "disabled")
        columns = [API_KEYS.c[name] for name in (*names, "expires_at", "max_tokens", "deleted_at")]
        query = select(*columns).where(API_KEYS.c.change > self._seen["api_keys"])
        if not self._by_id:
            query = query.where(API_KEYS.c.deleted_at.is_(None))
        for row in (await connection.execute(query)).all():
            known = self._by_id.get(row.id)
            if row.deleted_at is not None:
                if known is not None:
                    del self._by_id[row.id], self._by_index[known.index]
                continue
            key = CachedApiKey(
                id=row.id,
                index=row.key_index,
                organization=row.organization,
                organization_id=row.organization_id,
                disabled=row.disabled,
                expires_at=row.expires_at.timestamp() if row.expires_at else None,
                max_tokens=row.max_tokens,
            )
            if known is not None:
                key.used, key.tokens = known.used, known.tokens
                key.refilled_at = known.refilled_at
            self._by_id[key.id] = self._by_index[key.index] = key

    async def _read_totals(self, connection: AsyncConnection) -> None:
        used = (KEY_TOTALS.c.input_tokens + KEY_TOTALS.c.output_tokens).label("used")
        query = select(KEY_TOTALS.c.key_id, used).where(KEY_TOTALS.c.change > self._seen["usage"])
        for row in (await connection.execute(query)).all():
            key = self._by_id.get(row.key_id)
            if key is not None:
                key.used = row.used

    async def beat(self) -> None:
        """Send this replica's heartbeat, and divide the rate by the number of replicas."""
        count = self.facades = max(1, await self._replicas.beat(self._clock()))
        self._rate = None if self._whole_rate is None else self._whole_rate.shared(count)

    async def close(self) -> None:
        """Write what is not written yet and deregister this replica."""
        await self.write_uses()
        await self._replicas.leave()


def rate_limited(wait: float) -> ApiError:
    """Build a 429 with the time after which to try again."""
    return ApiError(
        429,
        "RATE_LIMITED",
        "rate limit of this API key exceeded; try again after Retry-After",
        retry_after=max(1, -int(-wait // 1)),
    )
