"""Organizations as the facade sees them, and the end of keys whose creator lost the Admin role.

Read by `cloister_api.principal` for every request; the guard runs beside and revokes keys as soon
as a membership is seen gone, so that a later re-promotion does not bring them back (spec,
"Authentication", rule 4).
"""

import logging
from collections.abc import Callable

from cloister_api.keyring import KeyRing
from cloister_api.ledger.keys import AdminKey
from cloister_clients.clock import Clock
from cloister_clients.kube import KubeClient, NotFound, Reflector
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import Role

__all__ = ["ID_ANNOTATION", "Organizations", "administers", "identifier"]

logger = logging.getLogger(__name__)

ID_ANNOTATION = "cloister.dev/id"
"""Identifier of an object that a restore made anew: the uid it had before."""
SWEEP_SECONDS = 30.0
"""Longest time between two looks at all keys."""


def identifier(organization: Organization) -> str:
    """Answer the identifier of an Organization, which outlives a restore."""
    return organization.metadata.annotations.get(ID_ANNOTATION) or organization.metadata.uid


def administers(organization: Organization, user: str) -> bool:
    """Answer whether a user is Admin of an Organization."""
    return any(
        member.user == user and member.role is Role.ADMIN for member in organization.spec.members
    )


def lost(organization: Organization | None, key: AdminKey) -> str | None:
    """Answer why a key has lost its organization; None = it has not."""
    if organization is None or identifier(organization) != key.organization_id:
        return "its organization was deleted"
    if not administers(organization, key.created_by):
        return "its creator is no longer an administrator of the organization"
    return None


class Organizations:
    """The copy of all Organizations, and what depends on it."""

    def __init__(
        self,
        client: KubeClient,
        reflector: Reflector[Organization],
        ring: KeyRing,
        clock: Clock,
    ) -> None:
        self._client = client
        self._reflector = reflector
        self._ring = ring
        self._clock = clock

    def of_key(self, key: AdminKey) -> Organization | None:
        """Answer the Organization of a key; None = not in the copy, or another of that slug."""
        entry = self._reflector.get(key.organization)
        if entry is None or identifier(entry.value) != key.organization_id:
            return None
        return entry.value

    async def now(self, key: AdminKey) -> Organization:
        """Answer the Organization of a key as the server has it.

        Raises
        ------
        KubeError
            When there is none or the server cannot be reached.
        """
        return Organization.read(await self._client.get(of(Organization), key.organization))

    async def revoke_if_lost(self, key: AdminKey) -> str | None:
        """Revoke a key when the server, not only the copy, says that its right is gone.

        Returns
        -------
        str or None
            Why it was revoked; None when it was not.

        Raises
        ------
        KubeError
            When the server cannot be reached.
        """
        try:
            organization: Organization | None = await self.now(key)
        except NotFound:
            organization = None
        reason = lost(organization, key)
        if reason is not None:
            logger.info("admin key %s of %s: %s", key.id, key.organization, reason)
            await self._ring.revoke(key, because=reason, now=self._clock())
        return reason

    async def sweep(self) -> None:
        """Look at all keys that are still valid."""
        for key in self._ring.all():
            if key.revoked_at is None and lost(self.of_key(key), key) is not None:
                await self.revoke_if_lost(key)

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
