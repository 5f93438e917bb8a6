"""Which organization serves a host name.

Generated names contain the organization; custom domains are those that the operator wrote into a
Container's status, so that naming another organization's domain in a spec claims nothing.
"""

from cloister_api.cache import CachedContainer, ClusterCache
from cloister_crds.kinds import Organization
from cloister_crds.names import host_label

__all__ = ["HostnameOwners"]


class HostnameOwners:
    """Owners of the host names of the installation."""

    def __init__(self, cache: ClusterCache, containers_domain: str) -> None:
        self._cache = cache
        self._suffix = f".{containers_domain}"
        self._slugs: dict[str, str] = {}
        self._by_namespace: dict[str, str] = {}
        self._custom: dict[str, str] = {}
        self._seen = (-1, -1)

    def organization(self, slug: str) -> Organization | None:
        """Return the Organization of a slug; None = there is none."""
        entry = self._cache.organizations.get(slug)
        return None if entry is None else entry.value

    def owner(self, host: str) -> Organization | None:
        """Return the Organization that serves a host name; None = none does.

        Parameters
        ----------
        host
            A host name, with or without port, in any case.
        """
        name = host.partition(":")[0].rstrip(".").lower()
        slug = self._slug(name)
        if slug is None and self.refresh():
            slug = self._slug(name)
        return None if slug is None else self.organization(slug)

    def _slug(self, name: str) -> str | None:
        if name.endswith(self._suffix):
            return self._slugs.get(name.removesuffix(self._suffix).rpartition(".")[2])
        return self._by_namespace.get(self._custom.get(name, ""))

    def refresh(self) -> bool:
        """Rebuild the maps if the cache has changed; return whether it had."""
        present = (self._cache.organizations.version, self._cache.containers.version)
        if present == self._seen:
            return False
        organizations = [entry.value for entry in self._cache.organizations.all()]
        self._slugs = {host_label(one.metadata.name): one.metadata.name for one in organizations}
        self._by_namespace = {one.spec.namespace: one.metadata.name for one in organizations}
        held = [entry.value for entry in self._cache.containers.all()]
        self._custom = {}
        # The oldest is last and wins: a later container does not take a name away.
        for one in sorted(held, key=creation_order, reverse=True):
            domain = one.container.status.domain
            if domain and not domain.endswith(self._suffix):
                self._custom[domain] = one.container.metadata.namespace or ""
        self._seen = present
        return True


def creation_order(held: CachedContainer) -> tuple[str, str]:
    """Return the sort key of Containers: creation, then uid."""
    meta = held.container.metadata
    created = meta.creation_timestamp
    return (created.isoformat() if created else "", meta.uid)
