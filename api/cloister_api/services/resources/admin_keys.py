"""Admin keys of an organization, for its administrators who are signed in.

An admin key cannot do any of this: a stolen one must not make others.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from cloister_api.auth.admin_key_cache import AdminKeyCache
from cloister_api.auth.authenticator import Principal
from cloister_api.errors import bad_request, conflict, forbidden, not_found
from cloister_api.ledger.keys.admin_keys import AdminKey, AdminKeys
from cloister_api.services.quotas import limits_of, require_place
from cloister_clients.clock import Clock
from cloister_crds.installation import DefaultLimits

__all__ = ["AdminKeyDesk", "is_valid"]

MAX_NAME = 128
"""Most characters of a name."""
MAX_DAYS = 3650
"""Most days until a key expires."""


class AdminKeyDesk:
    """Creates, lists, reveals and revokes admin keys."""

    def __init__(
        self, keys: AdminKeys, cache: AdminKeyCache, clock: Clock, default_limits: DefaultLimits
    ) -> None:
        self._keys = keys
        self._cache = cache
        self._clock = clock
        self._default_limits = default_limits

    def of(self, principal: Principal) -> list[AdminKey]:
        """Return the keys of the organization, newest first."""
        found = [
            key for key in self._cache.all() if key.organization_id == principal.organization_id
        ]
        return sorted(found, key=lambda key: (key.created_at, key.id), reverse=True)

    async def valid_of(self, principal: Principal, user: str) -> list[AdminKey]:
        """Return the valid keys that a user created, newest first, as the ledger has them."""
        await self._cache.refresh()
        now = self._clock()
        return [key for key in self.of(principal) if key.created_by == user and is_valid(key, now)]

    async def end(self, keys: Iterable[AdminKey], *, because: str) -> None:
        """Revoke keys permanently; those that were revoked before stay as they are.

        Parameters
        ----------
        keys
            The keys.
        because
            Why, for people.
        """
        for key in keys:
            await self._cache.revoke(key, because=because, now=self._clock())

    async def create(self, principal: Principal, *, name: str, days: str) -> AdminKey:
        """Create a key of the principal, which dies with their role.

        Parameters
        ----------
        principal
            Who creates it, an administrator.
        name
            Name for people.
        days
            Days until it expires; empty = it does not.

        Raises
        ------
        ApiError
            400 when the name or the days cannot be, 403 when the limit is reached.
        """
        if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
            raise bad_request(
                "name", f"name: write 1 to {MAX_NAME} characters that say what the key is for"
            )
        now = self._clock()
        expires_at = expiry_of(days, now)
        await self._cache.refresh()
        used = sum(is_valid(each, now) for each in self.of(principal))
        most = limits_of(principal, self._default_limits).admin_keys
        require_place("admin keys", used, most, remedy="revoke one")
        key, _ = await self._keys.create(
            organization=principal.slug,
            organization_id=principal.organization_id,
            user=principal.user,
            name=name,
            now=now,
            expires_at=expires_at,
        )
        await self._cache.refresh()
        return key

    async def reveal(self, principal: Principal, key_id: str) -> str:
        """Return the value of a key, for its creator alone.

        Raises
        ------
        ApiError
            404 when the organization has no such key, 403 when somebody else created it, 409 when
            it is not valid any more.
        """
        key = self._named(principal, key_id)
        if key.created_by != principal.user:
            raise forbidden(
                f"only {key.created_by}, who created this key, may see it; create one of your own"
            )
        if not is_valid(key, self._clock()):
            raise conflict("this key is not valid any more; create another one")
        value = await self._keys.value(key.id)
        if value is None:
            raise not_found("admin key")
        return value

    async def revoke(self, principal: Principal, key_id: str) -> None:
        """Revoke a key permanently, whoever created it.

        Raises
        ------
        ApiError
            404 when the organization has no such key.
        """
        key = self._named(principal, key_id)
        because = f"by {principal.user}"
        await self._cache.revoke(key, because=because, now=self._clock())

    def _named(self, principal: Principal, key_id: str) -> AdminKey:
        for key in self.of(principal):
            if key.id == key_id:
                return key
        raise not_found("admin key")


def is_valid(key: AdminKey, now: datetime) -> bool:
    """Return whether a key may still be used."""
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > now)


def expiry_of(days: str, now: datetime) -> datetime | None:
    """Return when a key of so many days expires; None = never.

    Raises
    ------
    ApiError
        400 when it is not a number of days.
    """
    if not days:
        return None
    if not days.isascii() or not days.isdecimal() or not 1 <= int(days[:5]) <= MAX_DAYS:
        raise bad_request("days", f"days: write a number from 1 to {MAX_DAYS}, or nothing")
    return now + timedelta(days=int(days[:5]))
