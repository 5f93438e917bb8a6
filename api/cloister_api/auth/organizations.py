"""Organizations as the facade sees them; revokes the keys of creators who lost the Admin role.

Read by `cloister_api.auth.authenticator` for every request; the guard runs in the background and
revokes keys as soon as a membership is found to be gone, so that a later re-promotion does not
bring them back (spec 2.4).
"""

import logging
from collections.abc import Callable
from contextlib import suppress

from cloister_api.auth.admin_keys import AdminKeyCache
from cloister_api.errors import ApiError, forbidden
from cloister_api.ledger.keys.admin_keys import AdminKey
from cloister_clients.clock import Clock
from cloister_clients.kube import KubeClient, NotFound, Reflector
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import Role

logger = logging.getLogger(__name__)

DEMOTED = "its creator is no longer an administrator of the organization"
"""Why a key was revoked."""
GONE = "the organization of this admin key does not exist"
"""Why a key whose Organization is missing is refused."""
SWEEP_SECONDS = 30.0
"""Longest time between two checks of all keys."""


def administers(organization: Organization, user: str) -> bool:
    """Return whether a user is Admin of an Organization."""
    return any(
        member.user == user and member.role is Role.ADMIN for member in organization.spec.members
    )


class Organizations:
    """The cached Organizations, and the keys that depend on them."""

    def __init__(
        self,
        client: KubeClient,
        reflector: Reflector[Organization],
        admin_keys: AdminKeyCache,
        clock: Clock,
    ) -> None:
        self._client = client
        self._reflector = reflector
        self._admin_keys = admin_keys
        self._clock = clock

    def of_key(self, key: AdminKey) -> Organization | None:
        """Return the Organization of a key; None if not cached, or another one has the slug."""
        entry = self._reflector.get(key.organization)
        if entry is None or entry.value.identifier != key.organization_id:
            return None
        return entry.value

    async def confirmed(self, key: AdminKey) -> Organization:
        """Return the Organization of a key as the API server has it, not only the cache.

        A key whose creator lost the role is revoked in the ledger. One whose Organization is
        missing is only refused: after a restore the Organization is back with its identifier.

        Raises
        ------
        ApiError
            403 when the key has lost its permission.
        KubeError
            When the server cannot be reached.
        """
        try:
            found = await self._client.get(of(Organization), key.organization)
        except NotFound as error:
            raise forbidden(GONE) from error
        organization = Organization.read(found)
        if organization.identifier != key.organization_id:
            raise forbidden(GONE)
        if administers(organization, key.created_by):
            return organization
        logger.info("admin key %s of %s: %s", key.id, key.organization, DEMOTED)
        await self._admin_keys.revoke(key, because=DEMOTED, now=self._clock())
        raise forbidden(f"this admin key was revoked: {DEMOTED}; create another")

    async def sweep(self) -> None:
        """Check all keys that are still valid, and revoke those whose creator lost the role."""
        for key in self._admin_keys.all():
            if key.revoked_at is not None:
                continue
            organization = self.of_key(key)
            if organization is not None and not administers(organization, key.created_by):
                with suppress(ApiError):
                    await self.confirmed(key)

    async def guard(self) -> None:
        """Sweep after every change of an Organization, until cancelled."""
        seen = -1
        while True:
            await self._reflector.until(self._changed_since(seen), within=SWEEP_SECONDS)
            seen = self._reflector.version
            try:
                await self.sweep()
            except Exception:  # the server or the ledger may be unreachable; the next sweep retries
                logger.exception("the creators of keys could not be checked")

    def _changed_since(self, seen: int) -> Callable[[], bool]:
        return lambda: self._reflector.version > seen
