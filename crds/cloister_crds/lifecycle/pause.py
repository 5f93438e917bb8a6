"""Pause: which objects an administrator can have the operator ignore, and which never.

The annotation is refused to tenants by an admission policy. A Domain, a HostnameClaim and a route
are not paused: they decide who may have a host name, and another organization may wait for it. What
of a paused Container continues is decided in `cloister_operator.rollout.decide`.
"""

from cloister_crds.kinds.meta import PAUSED_ANNOTATION, Resource

__all__ = ["PAUSABLE", "is_paused"]

PAUSABLE = frozenset(
    {
        "Container",
        "Deployment",
        "Enclave",
        "Host",
        "Organization",
        "RegistryCredential",
        "SSHKey",
        "Secret",
    }
)
"""Kinds whose objects can be paused."""


def is_paused(resource: Resource) -> bool:
    """Return whether an object is paused; one of a kind that cannot be never is."""
    asked = resource.metadata.annotations.get(PAUSED_ANNOTATION) == "true"
    return asked and resource.INFO.kind in PAUSABLE
