"""Organization: a customer, its members, limits and entitlements; it owns one namespace."""

import re
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, Strict

from cloister_crds.kinds.meta import GROUP, KindInfo, Model, Record, RecordStatus
from cloister_crds.kinds.scalars import LABEL_PATTERN, Count, Flag, Whole
from cloister_crds.schema.markers import Cel, Column, ListType, immutable, matches

__all__ = [
    "ORGANIZATION_FINALIZER",
    "Billing",
    "Entitlements",
    "Limits",
    "Member",
    "Organization",
    "OrganizationCounts",
    "OrganizationSpec",
    "OrganizationStatus",
    "Role",
]


class Role(StrEnum):
    """What a member may do."""

    ADMIN = "Admin"
    """Everything; only an Admin may hold admin keys."""
    DEVELOPER = "Developer"
    """Read, and create, update, stop and start Containers."""
    AUDITOR = "Auditor"
    """Read, the audit trail and invoices too."""
    MEMBER = "Member"
    """Read."""


class Member(Model):
    """A person of the organization."""

    user: Annotated[
        str,
        Field(min_length=1, max_length=253),
        matches(
            r"^[!-~]+$",
            "user is a stable identifier without spaces, such as an e-mail address",
        ),
    ]
    """user is the person's stable identifier, such as an e-mail address."""
    role: Role = Role.MEMBER
    """role is Admin (everything), Developer (reads, deploys, updates and stops Containers), Auditor
    (reads, the audit trail too) or Member (reads). Admin keys die with their creator's Admin role.
    Default Member."""


Tier = Annotated[int, Strict(), Field(ge=1, le=2_147_483_647)]
"""A value that a configuration file may request; stricter than `Whole`, as the server is in sets of
numbers: 2.0 is refused there."""
ORGANIZATION_FINALIZER = f"{GROUP}/namespace"
"""Finalizer by which an Organization outlives what is in its namespace."""
SYSTEM_NAMESPACES = ("default", "cloister-system")
"""Namespaces that are not an organization's, in addition to all that begin with ``kube-``."""


class Limits(Model):
    """How much an organization may have."""

    containers: Annotated[int, Whole(0, 100_000)] = 10
    """containers is how many Containers may exist, stopped ones counted. Default 10."""
    secrets: Annotated[int, Whole(0, 10_000)] | None = None
    """secrets is how many Secrets of cloister.dev may exist; core Secrets are bounded by a number
    that follows from it. Unset means defaultLimits of the operator's settings, 100 by default."""
    ssh_keys: Annotated[int, Whole(0, 10_000)] | None = None
    """sshKeys is how many SSHKeys may exist. Unset means defaultLimits, 100 by default."""
    domains: Annotated[int, Whole(0, 10_000)] | None = None
    """domains is how many Domains may exist. Unset means defaultLimits, 100 by default."""
    api_keys: Annotated[int, Whole(0, 100_000)] | None = None
    """apiKeys is how many API keys may exist, deleted ones not counted. Unset means defaultLimits,
    1000 by default."""
    admin_keys: Annotated[int, Whole(0, 10_000)] | None = None
    """adminKeys is how many valid admin keys may exist; the command line of the API creates them
    beyond it. Unset means defaultLimits, 100 by default."""
    cpus: Annotated[tuple[Tier, ...], Field(max_length=16), ListType("set")] = (2, 4, 8, 16, 32)
    """cpus are the values that a configuration file may request. Default 2, 4, 8, 16, 32."""
    memory: Annotated[tuple[Tier, ...], Field(max_length=16), ListType("set")] = (
        8192,
        16384,
        32768,
        65536,
        131072,
        262144,
        524288,
    )
    """memory are the values in MB that a configuration file may request."""
    gpus: Annotated[tuple[Tier, ...], Field(max_length=16), ListType("set")] = (1, 8)
    """gpus are the GPU counts that may be requested, with the entitlement gpu. Default 1, 8."""


class Entitlements(Model):
    """What is switched on for an organization; all are off by default."""

    gpu: Flag = False
    """gpu lets Containers have GPUs. Default false."""
    host_selection: Flag = False
    """hostSelection lets Containers name their Host. Default false."""
    private_registries: Flag = False
    """privateRegistries lets the organization keep registry credentials. Default false."""
    domain_suffixes: Annotated[
        tuple[
            Annotated[
                str,
                Field(min_length=1, max_length=253),
                matches(
                    r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$",
                    "domainSuffixes are lowercase DNS names without a dot in front, such as "
                    "example.com",
                ),
            ],
            ...,
        ],
        Field(max_length=32),
        ListType("set"),
    ] = ()
    """domainSuffixes are the suffixes that custom domains must be subdomains of. Default none."""
    public_inference: Flag = False
    """publicInference admits API keys of other organizations at this one's domains. Default
    false."""


class Billing(Model):
    """Whether the organization pays."""

    container_subscription: Flag = False
    """containerSubscription is needed to create, start and relaunch Containers. Default false."""
    token_billing: Flag = False
    """tokenBilling is needed to create API keys. Default false."""
    customer_id: Annotated[str, Field(min_length=1, max_length=253)] | None = Field(
        default=None, alias="customerID"
    )
    """customerID is the payment processor's customer. In spec: once the processor has reported this
    customer, status.billing wins. In status: the customer it reported. Unset means no processor."""


class OrganizationSpec(Model):
    """Desired state of an Organization."""

    namespace: Annotated[
        str,
        Field(min_length=1, max_length=63),
        matches(
            LABEL_PATTERN,
            "namespace is of lowercase letters, digits and hyphens, with no hyphen at the ends",
        ),
        Cel(
            rule="!self.startsWith('kube-') && "
            + " && ".join(f"self != '{name}'" for name in SYSTEM_NAMESPACES),
            message="namespace belongs to the system ("
            + ", ".join(SYSTEM_NAMESPACES)
            + " or kube-…); choose one for only this Organization",
            reason="FieldValueForbidden",
            check=lambda name: not name.startswith("kube-") and name not in SYSTEM_NAMESPACES,
        ),
        immutable("namespace", "make another Organization"),
    ]
    """namespace holds all resources of the organization; it is created, or adopted when it carries
    the label cloister.dev/organization of this one. Immutable."""
    members: Annotated[
        tuple[Member, ...], Field(max_length=1000), ListType("map", keys=("user",))
    ] = ()
    """members are the people of the organization. Default none."""
    limits: Limits = Field(default_factory=Limits)
    """limits say how much the organization may have."""
    entitlements: Entitlements = Field(default_factory=Entitlements)
    """entitlements say what is switched on."""
    billing: Billing = Field(default_factory=Billing)
    """billing says whether the organization pays; once the payment processor has reported its
    customerID, status.billing wins."""


class OrganizationCounts(Model):
    """How many there are of what."""

    containers: Count = 0
    """containers counted against the limit."""
    ready: Count = 0
    """ready are the Containers that serve."""
    failed: Count = 0
    """failed are the Containers that failed."""
    secrets: Count = 0
    """secrets are the Secrets of cloister.dev."""
    ssh_keys: Count = 0
    """sshKeys are the SSHKeys."""
    domains: Count = 0
    """domains are the Domains."""


class OrganizationStatus(RecordStatus):
    """Observed state of an Organization."""

    counts: OrganizationCounts = Field(default_factory=OrganizationCounts)
    """counts of what the organization has."""
    billing: Billing | None = None
    """billing as the payment processor reports it; unset without a processor."""


def _is_slug(name: str) -> bool:
    """Return whether a name can be a label of a host name."""
    return len(name) <= 63 and re.fullmatch(LABEL_PATTERN, name) is not None  # noqa: PLR2004 - RFC 1123


class Organization(Record):
    """A customer: members, limits, entitlements, and a namespace for all it has."""

    INFO: ClassVar[KindInfo] = KindInfo(
        kind="Organization",
        plural="organizations",
        singular="organization",
        short_names=("org",),
        namespaced=False,
        description="A customer: members, limits, entitlements, and a namespace for all it has. "
        "metadata.name is its slug and is part of the host names of its Containers.",
    )
    CEL: ClassVar[tuple[Cel, ...]] = (
        Cel(
            rule="size(self.metadata.name) <= 63 && "
            f"self.metadata.name.matches(r'{LABEL_PATTERN}')",
            message="metadata.name is the organization's slug and is part of host names: lowercase "
            "letters, digits and hyphens, no hyphen at the ends, at most 63 characters",
            check=lambda organization: _is_slug(organization.metadata.name),
        ),
    )
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Namespace", ".spec.namespace"),
        Column("Containers", ".status.counts.containers", "integer"),
        Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        Column("Reason", ".status.conditions[?(@.type=='Ready')].reason"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    )

    spec: OrganizationSpec
    status: OrganizationStatus = Field(default_factory=OrganizationStatus)
