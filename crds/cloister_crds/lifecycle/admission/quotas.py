"""How many objects an organization may have: its limits, and the ResourceQuota that enforces them.

The facade refuses a create by the same numbers before it writes anything. A quota refuses creates
and nothing else: what exists above a limit that was lowered stays, and works.

Not counted: RegistryCredentials, of which there are three names; Enclaves, Pods, Services and
ConfigMaps, which only the operator creates, a few for each Container.
"""

from collections.abc import Mapping

from cloister_crds.installation import DefaultLimits
from cloister_crds.kinds import Container, Deployment, Domain, Secret, SSHKey
from cloister_crds.kinds.meta import GROUP, Resource
from cloister_crds.kinds.organization import Limits, OrganizationCounts

__all__ = [
    "QUOTA_MESSAGE",
    "QUOTA_UNKNOWN",
    "above_limits",
    "effective_limits",
    "quota_counts",
    "quota_reached",
]

QUOTA_MESSAGE = "exceeded quota"
"""Words of the API server's own refusal (Kubernetes, "Resource Quotas")."""
QUOTA_UNKNOWN = "status unknown for quota"
"""Its words while it has not counted yet, such as just after a kind was installed."""
_WAITING_CONTAINERS = 10
"""Containers beyond twice the limit that may wait for a place."""
_ENCLAVES = 6
"""Enclaves of one Container with a core Secret each: what serves, its successor, what drains, and
as many of the Container that replaces it."""
_OTHER_SECRETS = 50
"""Core Secrets beyond those of Secrets and Enclaves: of registries, to pull images, and what a
create that was interrupted has left."""


def effective_limits(limits: Limits, defaults: DefaultLimits) -> DefaultLimits:
    """Return the numbers that apply to an organization.

    Parameters
    ----------
    limits
        ``spec.limits`` of the Organization.
    """
    names = DefaultLimits.model_fields
    named = {name: getattr(limits, name) for name in names}
    return defaults.model_copy(update={name: n for name, n in named.items() if n is not None})


def quota_counts(limits: Limits, defaults: DefaultLimits, *, counted: bool) -> dict[str, int]:
    """Return the object counts of the ResourceQuota of an organization's namespace.

    Parameters
    ----------
    limits
        ``spec.limits`` of the Organization.
    counted
        Whether the cluster's quota controller counts objects of our kinds already. Until then,
        which takes minutes after the CRDs were installed, the API server refuses every object of a
        kind that a quota names: of our kinds only those are named that the Organization limits.
    """
    most = effective_limits(limits, defaults)
    # Each Container may be in the middle of a replacement, and some may wait for a place.
    containers = 2 * limits.containers + _WAITING_CONTAINERS
    by_default = {
        _count(Container): containers,
        # One for each repository, and one that is empty and about to be deleted.
        _count(Deployment): 2 * containers,
        _count(Domain): most.domains,
        _count(Secret): most.secrets,
        _count(SSHKey): most.ssh_keys,
    }
    named = {
        _count(Domain): limits.domains,
        _count(Secret): limits.secrets,
        _count(SSHKey): limits.ssh_keys,
    }
    return {
        **(by_default if counted else {name: n for name, n in named.items() if n is not None}),
        # The operator must be able to start what the organization may have.
        "count/secrets": most.secrets + _ENCLAVES * limits.containers + _OTHER_SECRETS,
    }


def above_limits(
    limits: Limits, defaults: DefaultLimits, counts: OrganizationCounts
) -> Mapping[str, tuple[int, int]]:
    """Return of what an organization has more than it may: name -> how many, and how many may be.

    Parameters
    ----------
    limits
        ``spec.limits`` of the Organization.
    """
    most = effective_limits(limits, defaults)
    bounded = {
        "containers": (counts.containers, limits.containers),
        "secrets": (counts.secrets, most.secrets),
        "sshKeys": (counts.ssh_keys, most.ssh_keys),
        "domains": (counts.domains, most.domains),
    }
    return {name: (used, bound) for name, (used, bound) in bounded.items() if used > bound}


def quota_reached(what: str, used: int, most: int, remedy: str = "delete one") -> str:
    """Return the sentence of a refusal.

    Parameters
    ----------
    most
        How many there may be.
    """
    return (
        f"quota reached: the organization has {used} {what} and may have {most}; {remedy} or ask "
        "the administrator for more"
    )


def _count(kind: type[Resource]) -> str:
    """Return the name of a kind's count in a ResourceQuota (Kubernetes, "Object count quota")."""
    return f"count/{kind.INFO.plural}.{GROUP}"
