"""The organization of a principal: limits, entitlements, billing, members. From memory."""

from collections import Counter
from collections.abc import Iterable, Mapping

from cloister_api.auth.admin_key_cache import AdminKeyCache
from cloister_api.auth.authenticator import Principal
from cloister_api.cache import ClusterCache, OwnedOrganization
from cloister_api.records.managers import manager_records
from cloister_api.records.timestamps import created_at
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
from cloister_api.schemas.status_responses import ManagerResponse
from cloister_api.services.quotas import limits_of
from cloister_api.sessions.sessions import Membership
from cloister_clients.clock import Clock, utc_text
from cloister_crds.installation import DefaultLimits
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import Role
from cloister_crds.lifecycle.admission.limits import billing_of

__all__ = ["OrganizationReader", "member_records", "organization_record"]


class OrganizationReader:
    """Reads organizations."""

    def __init__(
        self,
        cache: ClusterCache,
        admin_keys: AdminKeyCache,
        clock: Clock,
        gitops_managers: Iterable[str],
        default_limits: DefaultLimits,
    ) -> None:
        self._cache = cache
        self._admin_keys = admin_keys
        self._clock = clock
        self._gitops = tuple(gitops_managers)
        self._default_limits = default_limits

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
        principal
            Who does.
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
    """Return the record of an Organization.

    Parameters
    ----------
    organization
        The Organization.
    managed_by
        GitOps tools that manage fields of it.
    limits
        The limits that apply to its objects.
    """
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
    organization
        The Organization.
    keys
        How many valid admin keys each user created.
    """
    ordered = sorted(organization.spec.members, key=lambda member: member.user)
    return [
        MemberResponse(user=member.user, role=member.role, admin_keys=keys.get(member.user, 0))
        for member in ordered
    ]
