"""Which organization serves a host name, from the indexes of the informer cache.

Generated names contain the organization. A custom domain is of the organization whose Container
has claimed it, else of the one whose Enclave has it: an Enclave asks by the names that it was
created with as long as it lives, also after the domain was dropped. Tenants write neither claims
nor Enclaves, so that naming another organization's domain in a spec claims nothing.
"""

from collections.abc import Collection

from cloister_api.cache import (
    BY_EARLIER_LABEL,
    BY_HOSTNAME,
    BY_LABEL,
    BY_NAMESPACE,
    ClusterCache,
)
from cloister_clients.kube import ReflectedObject
from cloister_crds.kinds import Organization

__all__ = ["HostnameOwners"]


class HostnameOwners:
    """Owners of the host names of the installation."""

    def __init__(self, cache: ClusterCache, containers_domain: str) -> None:
        self._cache = cache
        self._suffix = f".{containers_domain}"

    def organization(self, slug: str) -> Organization | None:
        """Return the Organization of a slug; None = there is none."""
        entry = self._cache.organizations.get(slug)
        return None if entry is None else entry.value

    def owner(self, host: str) -> Organization | None:
        """Return the Organization that serves a host name; None = none does, or it is not clear.

        Parameters
        ----------
        host
            A host name, with or without port, in any case.
        """
        name = host.partition(":")[0].rstrip(".").lower()
        organizations = self._cache.organizations
        if name.endswith(self._suffix):
            label = name.removesuffix(self._suffix).rpartition(".")[2]
            found = organizations.by_index(BY_LABEL, label)
            return oldest(found or organizations.by_index(BY_EARLIER_LABEL, label))
        namespace = self._namespace(name)
        return oldest(organizations.by_index(BY_NAMESPACE, namespace)) if namespace else None

    def _namespace(self, name: str) -> str:
        """Return the namespace of the Container that has a custom domain; empty = none has it."""
        claim = self._cache.claims.get(name)
        if claim is not None:
            return claim.value.spec.holder.namespace
        enclaves = self._cache.enclaves.by_index(BY_HOSTNAME, name)
        namespaces = {entry.namespace for entry in enclaves}
        return namespaces.pop() if len(namespaces) == 1 else ""


def oldest(found: Collection[ReflectedObject[Organization]]) -> Organization | None:
    """Return the Organization that was first; None = there is none."""
    if len(found) == 1:
        return next(iter(found)).value
    return min((entry.value for entry in found), key=creation_order, default=None)


def creation_order(organization: Organization) -> tuple[str, str]:
    """Return the sort key of Organizations: creation, then uid."""
    created = organization.metadata.creation_timestamp
    return (created.isoformat() if created else "", organization.metadata.uid)
