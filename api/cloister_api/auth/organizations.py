"""Organizations as the facade sees them, and the end of keys whose creator lost the Admin role.

Read by `cloister_api.auth.authenticator` for every request; the guard runs beside and revokes keys
as soon as a membership is seen gone, so that a later re-promotion does not bring them back (spec,
"Authentication", rule 4).
"""

import logging
from collections.abc import Callable
from contextlib import suppress

from cloister_api.auth.admin_key_cache import AdminKeyCache
from cloister_api.errors import ApiError, forbidden
from cloister_api.ledger.keys.admin_keys import AdminKey
from cloister_clients.clock import Clock
from cloister_clients.kube import KubeClient, NotFound, Reflector
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import Role

__all__ = ["Organizations", "administers"]

logger = logging.getLogger(__name__)

DEMOTED = "its creator is no longer an administrator of the organization"
"""Why a key was revoked."""
GONE = "the organization of this admin key does not exist"
"""Why a key is refused whose Organization is not there."""
SWEEP_SECONDS = 30.0
"""Longest time between two looks at all keys."""


def administers(organization: Organization, user: str) -> bool:
    """Return whether a user is Admin of an Organization."""
    return any(
        member.user == user and member.role is Role.ADMIN for member in organization.spec.members
    )


class Organizations:
    """The copy of all Organizations, and what depends on it."""

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
        """Return the Organization of a key; None = not in the copy, or another of that slug."""
        entry = self._reflector.get(key.organization)
        if entry is None or entry.value.metadata.identifier != key.organization_id:
            return None
        return entry.value

    async def settled(self, key: AdminKey) -> Organization:
        """Return the Organization of a key as the server, not only the copy, has it.

        A key whose creator lost the role is revoked in the ledger. One whose Organization is not
        there is only refused: after a restore the Organization comes back with its identifier.

        Raises
        ------
        ApiError
            403 when the key has lost its right.
        KubeError
            When the server cannot be reached.
        """
        try:
            found = await self._client.get(of(Organization), key.organization)
        except NotFound as error:
            raise forbidden(GONE) from error
        organization = Organization.read(found)
        if organization.metadata.identifier != key.organization_id:
            raise forbidden(GONE)
        if administers(organization, key.created_by):
            return organization
        logger.info("admin key %s of %s: %s", key.id, key.organization, DEMOTED)
        await self._admin_keys.revoke(key, because=DEMOTED, now=self._clock())
        raise forbidden(f"this admin key was revoked: {DEMOTED}; create another")

    async def sweep(self) -> None:
        """Look at all keys that are still valid, and revoke those whose creator lost the role."""
        for key in self._admin_keys.all():
            if key.revoked_at is not None:
                continue
            organization = self.of_key(key)
            if organization is not None and not administers(organization, key.created_by):
                with suppress(ApiError):
                    await self.settled(key)

    async def guard(self) -> None:
        """Sweep after every change of an Organization, until cancelled."""
        seen = -1
        while True:
            await self._reflector.until(self._moved_on(seen), within=SWEEP_SECONDS)
            seen = self._reflector.version
            try:
                await self.sweep()
            except Exception:  # the server or the ledger may be away; the next sweep sees the same
                logger.exception("keys could not be compared with memberships")

    def _moved_on(self, seen: int) -> Callable[[], bool]:
        return lambda: self._reflector.version > seen
