"""Responses about the organization itself."""

from typing import Literal

from cloister_api.schemas.container_responses import ManagerResponse
from cloister_api.schemas.forms import Count, ResponseBody, Timestamp, Uuid
from cloister_crds.kinds.organization import Role


class MemberResponse(ResponseBody):
    """A person of the organization."""

    user: str
    """Stable identifier, such as an e-mail address."""
    role: Role
    """What the person may do."""
    admin_keys: Count
    """Valid admin keys that the person created, which are revoked with the role."""


class LimitsResponse(ResponseBody):
    """How much the organization may have."""

    containers: Count
    """Containers, stopped ones counted."""
    secrets: Count
    """Secrets."""
    ssh_keys: Count
    """SSH keys."""
    domains: Count
    """Custom domains."""
    api_keys: Count
    """API keys, deleted ones not counted."""
    admin_keys: Count
    """Valid admin keys."""
    cpus: list[Count]
    """Processors that a configuration file may request."""
    memory: list[Count]
    """Memory in MB that a configuration file may request."""
    gpus: list[Count]
    """GPUs that may be requested, with the entitlement `gpu`."""


class EntitlementsResponse(ResponseBody):
    """What is switched on for the organization."""

    gpu: bool
    """Containers may have GPUs."""
    host_selection: bool
    """Containers may name their host."""
    private_registries: bool
    """The organization may keep registry credentials."""
    domain_suffixes: list[str]
    """Suffixes that custom domains must be below; empty means no custom domains."""
    public_inference: bool
    """API keys of other organizations are admitted at the domains of this one."""


class BillingResponse(ResponseBody):
    """Whether the organization pays."""

    container_subscription: bool
    """Needed to create, start and relaunch containers."""
    token_billing: bool
    """Needed to create API keys."""
    by_processor: bool
    """Whether the payment processor reported it; otherwise an administrator of the installation
    set it."""


class CountsResponse(ResponseBody):
    """What the organization has."""

    containers: Count
    """Containers that count against the limit."""
    ready: Count
    """Containers that serve."""
    failed: Count
    """Containers that failed."""
    secrets: Count
    """Secrets."""
    ssh_keys: Count
    """SSH keys."""
    domains: Count
    """Custom domains."""


class OrganizationResponse(ResponseBody):
    """The organization of the admin key."""

    id: Uuid
    """Identifier."""
    slug: str
    """Name, which is part of host names."""
    namespace: str
    """Namespace of its custom resources."""
    created_at: Timestamp
    """When it was created."""
    limits: LimitsResponse
    """How much it may have."""
    entitlements: EntitlementsResponse
    """What is switched on."""
    billing: BillingResponse
    """Whether it pays."""
    counts: CountsResponse
    """What it has."""
    members: Count
    """People, whom `GET /api/members` lists."""
    managed_by: list[ManagerResponse]
    """GitOps tools that manage fields of the Organization."""


class MembershipResponse(ResponseBody):
    """An organization of the caller."""

    slug: str
    """Name of the organization."""
    role: Role
    """What the caller may do there."""


class SessionResponse(ResponseBody):
    """Who sends a request."""

    user: str
    """User who created the admin key or is signed in, as organizations name their members."""
    via: Literal["key", "session"]
    """How the caller is known: by an admin key, or by a session of the dashboard."""
    key_id: Uuid | None
    """Identifier of the admin key, as the audit trail has it; null for a session."""
    session_id: Uuid | None
    """Identifier of the session, as the audit trail has it; null for an admin key."""
    expires_at: Timestamp | None
    """When the admin key expires, or the session ends at the latest; null if never."""
    organizations: list[MembershipResponse]
    """Organizations that the caller reaches: that of the admin key, or all that name the user."""


class AdminKeyResponse(ResponseBody):
    """An admin key, without its value."""

    id: Uuid
    """Identifier, as the audit trail has it."""
    name: str
    """Name for people."""
    last_four: str
    """Last characters of its value."""
    created_by: str
    """User who created it, with whose role it ends."""
    created_at: Timestamp
    """When it was created."""
    expires_at: Timestamp | None
    """When it expires; null if never."""
    last_used_at: Timestamp | None
    """When it was last used, a minute late at most; null if never."""
    revoked_at: Timestamp | None
    """When it was revoked; null if it was not."""
    revoked_because: str | None
    """Why it was revoked; null if it was not."""
    valid: bool
    """Whether it counts now."""


class AdminKeyValueResponse(ResponseBody):
    """The value of an admin key."""

    key: str
    """The value, for `Authorization: Bearer`."""
