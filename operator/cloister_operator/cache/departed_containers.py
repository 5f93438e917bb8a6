"""Containers that are gone while Pods of theirs may still run, noted as the informer cache changes.

Between the end of a Container and the deletion of its Pods, by the garbage collector or by the
operator itself, nothing else in the cache tells that they still take its place.
"""

from collections import defaultdict

from cloister_clients.kube.kinds import POD
from cloister_crds.names import service_name
from cloister_operator.cache.projections import CONTAINER, ENCLAVE
from cloister_operator.cache.store import CachedObject, Store, StoreChange

__all__ = ["DepartedContainers"]


class DepartedContainers:
    """The Containers of a store that are gone, by namespace, for as long as they have Pods."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: defaultdict[str, set[str]] = defaultdict(set)
        store.subscribe(self._changed)

    def pods(self, namespace: str) -> list[CachedObject]:
        """Return the Pods of Containers of a namespace that are gone."""
        found = []
        for name in tuple(self._names.get(namespace, ())):
            left = self._left_of(namespace, name)
            # Without an Enclave nothing of it can start any more.
            if not left and not self._has_enclave(namespace, name):
                self._names[namespace].discard(name)
            found += left
        return found

    def _left_of(self, namespace: str, name: str) -> list[CachedObject]:
        """Return the Pods of a name that are not of the Container which has the name now."""
        pods = self._store.by_index(POD, "container", f"{namespace}/{service_name(name)}")
        return [pod for pod in pods if not self._is_present(namespace, name, pod)]

    def _is_present(self, namespace: str, name: str, pod: CachedObject) -> bool:
        """Return whether the Container of a Pod is there; by its uid where the Enclave tells it."""
        enclave = self._store.get(ENCLAVE, namespace, pod.name)
        if enclave is not None:
            return self._exists(namespace, name, enclave)
        return self._store.get(CONTAINER, namespace, name) is not None

    def _has_enclave(self, namespace: str, name: str) -> bool:
        """Return whether an Enclave is left of a Container that is gone."""
        enclaves = self._store.by_index(ENCLAVE, "container", f"{namespace}/{name}")
        return not all(self._exists(namespace, name, each) for each in enclaves)

    def _exists(self, namespace: str, name: str, enclave: CachedObject) -> bool:
        """Return whether the Container of an Enclave is cached."""
        present = self._store.get(CONTAINER, namespace, name)
        assert enclave.place is not None
        return present is not None and present.uid == enclave.place[1]

    def _changed(self, change: StoreChange) -> None:
        """Note a Container that is gone, and an Enclave whose Container is not there."""
        before, after = change.before, change.after
        if change.ref == CONTAINER and before is not None:
            if after is None or after.uid != before.uid:
                self._names[change.namespace].add(change.name)
        elif change.ref == ENCLAVE and after is not None:
            name = dict(after.index_values)["container"].partition("/")[2]
            if not self._exists(change.namespace, name, after):
                self._names[change.namespace].add(name)
