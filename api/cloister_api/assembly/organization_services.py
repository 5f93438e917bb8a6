"""Builds the services of an organization itself: its limits, its members, its admin keys."""

from cloister_api.assembly.infrastructure import Infrastructure
from cloister_api.auth.admin_key_cache import AdminKeyCache
from cloister_api.ledger.keys.admin_keys import AdminKeys
from cloister_api.ledger.keys.key_material import KeySealer
from cloister_api.services.resources.admin_keys import AdminKeyDesk
from cloister_api.services.resources.members import MemberDesk
from cloister_api.services.resources.organization import OrganizationReader

__all__ = ["admin_key_desk_of", "members_of", "organization_reader_of"]


def admin_key_desk_of(
    base: Infrastructure, admin_keys: AdminKeyCache, material: KeySealer
) -> AdminKeyDesk:
    """Build the service of admin keys."""
    keys = AdminKeys(base.engine, material)
    return AdminKeyDesk(keys, admin_keys, base.clock, base.installation.default_limits)


def organization_reader_of(base: Infrastructure, admin_keys: AdminKeyCache) -> OrganizationReader:
    """Build what reads organizations."""
    return OrganizationReader(
        base.cache,
        admin_keys,
        base.clock,
        base.settings.gitops_managers,
        base.installation.default_limits,
    )


def members_of(base: Infrastructure, keys: AdminKeyDesk) -> MemberDesk:
    """Build the service of members."""
    return MemberDesk(
        base.client,
        base.cache,
        keys,
        gitops_managers=base.settings.gitops_managers,
        write_wait=base.settings.write_wait_seconds,
    )
