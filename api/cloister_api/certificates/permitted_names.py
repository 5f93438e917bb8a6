"""Which names an Enclave may have certified now, and where control of them is proven.

From the informer cache alone; decided in `cloister_crds.lifecycle.names.certificate_names`.
"""

from collections.abc import Iterable

from cloister_api.cache import BY_NAMESPACE, CachedEnclave, ClusterCache
from cloister_clients.clock import Clock
from cloister_crds.kinds import Organization
from cloister_crds.lifecycle.names.certificate_names import CertificateRequester, refusal_of
from cloister_crds.lifecycle.names.domains import find_domain

__all__ = ["PermittedNames"]


class PermittedNames:
    """The names, by what the cache has."""

    def __init__(self, cache: ClusterCache, clock: Clock, containers_domain: str) -> None:
        self._cache = cache
        self._clock = clock
        self._containers_domain = containers_domain

    @property
    def ready(self) -> bool:
        """Whether the cache has been filled; before, nothing is refused or permitted."""
        return self._cache.ready

    def live(self, uid: str) -> CachedEnclave | None:
        """Return the Enclave with a uid; None = it is gone, or makes no requests any more."""
        entry = self._cache.enclaves.by_uid(uid)
        return entry.value if entry is not None and entry.value.live else None

    def existing(self) -> frozenset[str] | None:
        """Return the uids of all Enclaves; None = they are not known yet."""
        if not self.ready:
            return None
        return frozenset(entry.value.uid for entry in self._cache.enclaves.all())

    def refusal(self, enclave: CachedEnclave, names: Iterable[str]) -> str:
        """Return why an Enclave gets no certificate for names; empty = it gets one."""
        held = self._cache.containers.get(enclave.container, enclave.namespace)
        organization = self._organization(enclave.namespace)
        if held is None or held.value.container.metadata.uid != enclave.container_uid:
            return f"container {enclave.container} of this enclave does not exist any more"
        if organization is None:
            return f"no organization owns the namespace {enclave.namespace}"
        requester = CertificateRequester(
            held.value.container, organization, enclave.debug, self._containers_domain
        )
        domains = self._cache.domains_of(enclave.namespace)
        found = []
        for name in names:
            claim = self._cache.claims.get(name)
            found.append(
                refusal_of(
                    name,
                    requester,
                    claim=claim.value if claim is not None else None,
                    domain=find_domain(name, domains),
                    now=self._clock(),
                )
            )
        return "; ".join(each for each in found if each)

    def challenge_label(self, uid: str, hostname: str) -> str:
        """Return the label at which control of a custom domain is proven; empty = not known yet.

        Parameters
        ----------
        uid
            Of the Enclave.
        hostname
            The custom domain.
        """
        enclave = self.live(uid)
        domains = self._cache.domains_of(enclave.namespace) if enclave is not None else ()
        domain = find_domain(hostname, domains)
        records = domain.status.records if domain is not None else None
        return records.challenge_label if records is not None else ""

    def _organization(self, namespace: str) -> Organization | None:
        owners = self._cache.organizations.by_index(BY_NAMESPACE, namespace)
        return next((entry.value for entry in owners), None)
