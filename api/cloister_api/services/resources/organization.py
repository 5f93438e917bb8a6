"""The organization of a principal, from memory, and its administrators' admin keys."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from cloister_api.auth.admin_keys import AdminKeyCache
from cloister_api.auth.authenticator import Principal
from cloister_api.cache import OwnedOrganization
from cloister_api.errors import bad_request, conflict, forbidden, not_found
from cloister_api.ledger.keys.admin_keys import AdminKey, AdminKeys
from cloister_api.ledger.keys.key_material import KeySealer
from cloister_api.records.container import created_at, manager_records
from cloister_api.schemas.container_responses import ManagerResponse
from cloister_api.schemas.organization_responses import (
    BillingResponse,
    CountsResponse,
    EntitlementsResponse,
    LimitsResponse,
    MemberResponse,
    MembershipResponse,
    OrganizationResponse,
    SessionResponse,
)
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.services.quotas import limits_of, require_place
from cloister_api.sessions.sessions import Membership
from cloister_clients.clock import utc_text
from cloister_crds.installation import DefaultLimits
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import Role
from cloister_crds.lifecycle.admission.limits import billing_of


class OrganizationReader:
    """Reads organizations."""

    def __init__(self, base: Infrastructure, admin_keys: AdminKeyCache) -> None:
        self._cache, self._clock = base.cache, base.clock
        self._admin_keys = admin_keys
        self._gitops = tuple(base.settings.gitops_managers)
        self._default_limits = base.installation.default_limits

    def of(self, principal: Principal) -> OrganizationResponse:
        """Return the record of the principal's organization."""
        entry = self._cache.organizations.get(principal.slug)
        held = entry.value if entry is not None else None
        owners = held.owners if isinstance(held, OwnedOrganization) else {}
        return organization_record(
            principal.organization,
            manager_records(owners, self._gitops),
            limits_of(principal, self._default_limits),
        )

    def session(self, principal: Principal, memberships: list[Membership]) -> SessionResponse:
        """Return the record of who sends a request.

        Parameters
        ----------
        memberships
            Organizations that name them; of an admin key only its own one counts.
        """
        if principal.session_ends_at is not None:
            return SessionResponse(
                user=principal.user,
                via="session",
                key_id=None,
                session_id=principal.session_id,
                expires_at=utc_text(principal.session_ends_at),
                organizations=[
                    MembershipResponse(slug=each.organization.metadata.name, role=each.role)
                    for each in memberships
                ],
            )
        key = next(key for key in self._admin_keys.all() if key.id == principal.key_id)
        expires = utc_text(key.expires_at) if key.expires_at is not None else None
        return SessionResponse(
            user=principal.user,
            via="key",
            key_id=principal.key_id,
            session_id=None,
            expires_at=expires,
            organizations=[MembershipResponse(slug=principal.slug, role=Role.ADMIN)],
        )

    def members(self, principal: Principal) -> list[MemberResponse]:
        """Return the people of the principal's organization, by name."""
        now = self._clock()
        keys = Counter(
            key.created_by
            for key in self._admin_keys.all()
            if key.organization_id == principal.organization_id
            and key.revoked_at is None
            and (key.expires_at is None or key.expires_at > now)
        )
        return member_records(principal.organization, keys)


def organization_record(
    organization: Organization, managed_by: list[ManagerResponse], limits: DefaultLimits
) -> OrganizationResponse:
    """Return the record of an Organization."""
    spec, counts = organization.spec, organization.status.counts
    billing = billing_of(organization)
    return OrganizationResponse(
        id=organization.identifier,
        slug=organization.metadata.name,
        namespace=spec.namespace,
        created_at=created_at(organization.metadata),
        limits=LimitsResponse(
            containers=spec.limits.containers,
            secrets=limits.secrets,
            ssh_keys=limits.ssh_keys,
            domains=limits.domains,
            api_keys=limits.api_keys,
            admin_keys=limits.admin_keys,
            cpus=sorted(spec.limits.cpus),
            memory=sorted(spec.limits.memory),
            gpus=sorted(spec.limits.gpus),
        ),
        entitlements=EntitlementsResponse(
            gpu=spec.entitlements.gpu,
            host_selection=spec.entitlements.host_selection,
            private_registries=spec.entitlements.private_registries,
            domain_suffixes=list(spec.entitlements.domain_suffixes),
            public_inference=spec.entitlements.public_inference,
        ),
        billing=BillingResponse(
            container_subscription=billing.container_subscription,
            token_billing=billing.token_billing,
            by_processor=billing is not spec.billing,
        ),
        counts=CountsResponse(
            containers=counts.containers,
            ready=counts.ready,
            failed=counts.failed,
            secrets=counts.secrets,
            ssh_keys=counts.ssh_keys,
            domains=counts.domains,
        ),
        members=len(spec.members),
        managed_by=managed_by,
    )


def member_records(organization: Organization, keys: Mapping[str, int]) -> list[MemberResponse]:
    """Return the records of the members of an Organization, by name.

    Parameters
    ----------
    keys
        How many valid admin keys each user created.
    """
    ordered = sorted(organization.spec.members, key=lambda member: member.user)
    return [
        MemberResponse(user=member.user, role=member.role, admin_keys=keys.get(member.user, 0))
        for member in ordered
    ]


MAX_NAME = 128
"""Most characters of a name."""
MAX_DAYS = 3650
"""Most days until a key expires."""


class AdminKeyDesk:
    """Creates, lists, reveals and revokes admin keys."""

    def __init__(self, base: Infrastructure, cache: AdminKeyCache, material: KeySealer) -> None:
        self._keys = AdminKeys(base.engine, material)
        self._cache = cache
        self._clock = base.clock
        self._default_limits = base.installation.default_limits

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
        """Revoke keys permanently; those that were revoked before stay as they are."""
        for key in keys:
            await self._cache.revoke(key, because=because, now=self._clock())

    async def create(self, principal: Principal, *, name: str, days: str) -> AdminKey:
        """Create a key of the principal, which dies with their role.

        Parameters
        ----------
        days
            Days until it expires; empty if it does not.

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
        """Return the value of a key, only for its creator.

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
        """Revoke a key permanently, also another user's.

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
    """Return when a key of so many days expires; None if never.

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
