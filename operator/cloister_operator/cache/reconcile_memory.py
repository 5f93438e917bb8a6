"""What reconciles remember between one another: all state of the operator that is not a cache.

An entry belongs to an object and is dropped when that object leaves the informer cache. Nothing
here is needed for correctness; what a restart or a new leader loses is made up for:

========================  ==========================================================================
lost                      consequence
========================  ==========================================================================
`children_complete`       the snapshot of secrets is read once more before the Pod is created; an
                          Enclave without its children is noticed again by the same read
`missing_api`             noticed again when the children cannot be built again
built Enclave             its ConfigMap is read and it is built again before the Pod is created
deferred status           progress is written up to 15 seconds later
refused Enclave           it is created, and refused, once more
`refused`                 as above
`applied`                 the NetworkPolicies and the PodDisruptionBudget are applied once more
`kinds_counted`           quotas are applied with the default counts some seconds later
========================  ==========================================================================
"""

import contextlib
from dataclasses import dataclass, field
from datetime import timedelta

from cachetools import FIFOCache

from cloister_clients.kube import KindRef
from cloister_crds.kinds import Container, Enclave, Organization
from cloister_operator.cache.projections import CONTAINER, ENCLAVE, ORGANIZATION
from cloister_operator.cache.store import Store, StoreChange
from cloister_operator.enclave.built import BuiltEnclave

__all__ = ["AttemptState", "OrganizationState", "ReconcileMemory"]

_BUILT_BYTES = 64 * 1024**2
"""Built Enclaves at most, in bytes; one that was dropped is built again."""
_PARSED = 16
"""Bytes that a parsed file takes, for each byte of its text."""


_REFS: dict[type, KindRef] = {Container: CONTAINER, Enclave: ENCLAVE, Organization: ORGANIZATION}


@dataclass(slots=True)
class AttemptState:
    """What is remembered of one Enclave."""

    children_complete: bool | None = None
    """Whether its ConfigMap and snapshot are there; None = not known yet."""
    missing_api: str = ""
    """What it lacks while the API's address is not known, as a sentence; empty = nothing."""
    refused: str = ""
    """Why the API server does not accept one of its children, for good; empty = it does."""


@dataclass(slots=True)
class OrganizationState:
    """What is remembered of one Organization."""

    applied: dict[str, str] = field(default_factory=dict)
    """Manifests that were applied last in its namespace, as JSON by kind and name."""


class ReconcileMemory:
    """Entries by uid; owned by the process, used by reconcilers in the event loop alone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._attempts: dict[str, AttemptState] = {}
        self._organizations: dict[str, OrganizationState] = {}
        self._refused: dict[str, tuple[str, str]] = {}
        self._deferred: dict[str, float] = {}
        self._built: FIFOCache[str, BuiltEnclave] = FIFOCache(_BUILT_BYTES, getsizeof=_size_of)
        self.kinds_counted = False
        """Whether the cluster's quota controller counts objects of our kinds."""
        store.subscribe(self._on_change)

    def __len__(self) -> int:
        """Return how many entries there are, of all kinds."""
        of_enclaves = (self._attempts, self._built)
        others = len(self._organizations) + len(self._refused) + len(self._deferred)
        return others + sum(len(each) for each in of_enclaves)

    def attempt(self, enclave: Enclave) -> AttemptState:
        """Return the entry of an Enclave; of one that has left the cache an entry nobody keeps."""
        known = self._attempts.get(enclave.metadata.uid)
        if known is None:
            known = AttemptState()
            if self._is_cached(enclave):
                self._attempts[enclave.metadata.uid] = known
        return known

    def organization(self, organization: Organization) -> OrganizationState:
        """Return the entry of an Organization; as `attempt`."""
        known = self._organizations.get(organization.metadata.uid)
        if known is None:
            known = OrganizationState()
            if self._is_cached(organization):
                self._organizations[organization.metadata.uid] = known
        return known

    def forget_applied(self) -> None:
        """Have every guard of a namespace applied again when it is needed next."""
        self._organizations.clear()

    def refuse(self, container: Container, revision: str, message: str) -> None:
        """Remember that the API server does not accept the Enclave of a request."""
        if self._is_cached(container):
            self._refused[container.metadata.uid] = (revision, message)

    def refused(self, container: Container) -> tuple[str, str] | None:
        """Return the last refused request and why; None = none was refused."""
        return self._refused.get(container.metadata.uid)

    def defer_status(
        self, resource: Container | Enclave, delay: timedelta, now: float
    ) -> timedelta | None:
        """Return how long a status that differs from the written one may still wait.

        Parameters
        ----------
        resource
            What it is the status of.
        delay
            How long it may wait since it first differed.
        now
            The queue's time.

        Returns
        -------
        timedelta | None
            None = it is written now.
        """
        since = now
        if self._is_cached(resource):
            since = self._deferred.setdefault(resource.metadata.uid, now)
        left = since + delay.total_seconds() - now
        return timedelta(seconds=left) if left > 0 else None

    def forget_deferred(self, resource: Container | Enclave) -> None:
        """Note that a status is written, or does not differ."""
        self._deferred.pop(resource.metadata.uid, None)

    def keep_built(self, built: BuiltEnclave) -> None:
        """Keep an Enclave whose ConfigMap was just created until its Pod is created."""
        if self._is_cached(built.plan.enclave):
            with contextlib.suppress(ValueError):  # larger than all that is kept
                self._built[built.plan.enclave.metadata.uid] = built

    def take_built(self, enclave: Enclave) -> BuiltEnclave | None:
        """Return an Enclave as it was built, once; None: it must be built from its ConfigMap."""
        found: BuiltEnclave | None = self._built.pop(enclave.metadata.uid, None)
        return found

    def _is_cached(self, resource: Container | Enclave | Organization) -> bool:
        """Return whether the cache has an object.

        A reconcile under way may outlast its object: what it remembers then would never be dropped.
        """
        ref = _REFS[type(resource)]
        entry = self._store.get(ref, resource.metadata.namespace or "", resource.metadata.name)
        return entry is not None and entry.uid == resource.metadata.uid

    def _on_change(self, change: StoreChange) -> None:
        """Drop the entries of an object that was removed, or replaced by one of its name."""
        gone = change.before
        if gone is None or (change.after is not None and change.after.uid == gone.uid):
            return
        self._deferred.pop(gone.uid, None)
        if change.ref == ENCLAVE:
            self._attempts.pop(gone.uid, None)
            self._built.pop(gone.uid, None)
        elif change.ref == CONTAINER:
            self._refused.pop(gone.uid, None)
        elif change.ref == ORGANIZATION:
            self._organizations.pop(gone.uid, None)


def _size_of(built: BuiltEnclave) -> int:
    """Return about how many bytes a built Enclave takes."""
    texts = sum(map(len, built.documents.values())) + len(built.measurement.text)
    return texts + len(built.plan.file) * _PARSED
