"""Authentication: from the Authorization header to an organization and an administrator of it.

Rules (spec 2, 25.8): unknown, malformed and expired keys,
and keys that are not admin keys, are 401; a revoked key, or one whose creator is no longer Admin
of the organization, is 403 permanently.
"""

import hmac
from dataclasses import dataclass, field
from datetime import datetime

from cloister_api.auth.admin_keys import AdminKeyCache
from cloister_api.auth.organizations import Organizations, administers
from cloister_api.errors import ApiError, forbidden
from cloister_api.ledger.keys.admin_keys import AdminKey
from cloister_api.ledger.keys.key_material import well_formed
from cloister_clients.clock import Clock
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import Role

UNKNOWN = ApiError(
    401,
    "UNAUTHORIZED",
    "invalid or expired admin API key; send Authorization: Bearer admin_… of this installation",
)
MISSING = ApiError(
    401, "UNAUTHORIZED", "no admin API key; send the header Authorization: Bearer <admin key>"
)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sends a request."""

    key_id: str
    """Identifier of the admin key; empty if a session of the dashboard sends it."""
    user: str
    """User who created the key, or is signed in."""
    organization: Organization
    """Organization that the key belongs to, or whose page it is."""
    role: Role = field(kw_only=True)
    """The user's role in it."""
    session_id: str = ""
    """Identifier of the session of the dashboard; empty if an admin key sends it."""
    session_ends_at: datetime | None = None
    """When that session ends at the latest, in UTC; None if there is none."""
    authenticated_at: datetime | None = None
    """When who is signed in last proved who they are, in UTC; None if an admin key sends it."""

    @property
    def caller(self) -> str:
        """Identifier of the admin key or session."""
        return self.key_id or self.session_id

    @property
    def slug(self) -> str:
        """Slug of the organization."""
        return self.organization.metadata.name

    @property
    def organization_id(self) -> str:
        """Identifier of the organization, which outlives a restore."""
        return self.organization.identifier

    @property
    def namespace(self) -> str:
        """Namespace of the organization."""
        return self.organization.spec.namespace


class Authenticator:
    """Finds the principal of a request, from memory."""

    def __init__(
        self, admin_keys: AdminKeyCache, organizations: Organizations, clock: Clock
    ) -> None:
        self._admin_keys = admin_keys
        self._organizations = organizations
        self._clock = clock

    async def __call__(self, authorization: str | None) -> Principal:
        """Return the principal of an Authorization header.

        Raises
        ------
        ApiError
            401 when the key is unknown or expired, 403 when it was revoked.
        """
        key = await self._key(authorization)
        now = self._clock()
        if key.expires_at is not None and key.expires_at <= now:
            raise UNKNOWN
        if key.revoked_at is not None:
            raise forbidden(f"this admin key was revoked: {key.revoked_because}; create another")
        organization = self._organizations.of_key(key)
        if organization is None or not administers(organization, key.created_by):
            organization = await self._organizations.confirmed(key)
        self._admin_keys.note_use(key, now)
        return Principal(key.id, key.created_by, organization, role=Role.ADMIN)

    async def _key(self, authorization: str | None) -> AdminKey:
        if not authorization:
            raise MISSING
        scheme, _, value = authorization.partition(" ")
        value = value.strip()
        if scheme.lower() != "bearer" or not well_formed(value):
            raise UNKNOWN
        index = self._admin_keys.index(value)
        key = await self._admin_keys.find(index)
        # The lookup compared hashes of secrets, not secrets; this comparison takes constant time.
        if key is None or not hmac.compare_digest(key.index, index):
            raise UNKNOWN
        return key
