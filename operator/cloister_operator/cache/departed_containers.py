"""Counts and order of Containers, and deleted ones whose Pods may still run.

All are kept as the cache changes.
"""

from collections import Counter

from cloister_clients.kube.kinds import POD
from cloister_crds.lifecycle.admission.limits import PlaceOrder
from cloister_crds.names import service_name
from cloister_operator.cache.projections import CONTAINER, ENCLAVE, STATE_INDEX
from cloister_operator.cache.store import CachedObject, Store, StoreChange
from cloister_operator.telemetry.metrics import CountedState


class ContainerCounts:
    """Counts the Containers of a store; written in the event loop, read by any thread."""

    def __init__(self, store: Store) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        store.subscribe(self._changed)

    def __call__(self) -> dict[CountedState, int]:
        """Return how many Containers are in each state that any is in."""
        return {_state(*state): count for state, count in self._counts.copy().items() if count}

    def _changed(self, change: StoreChange) -> None:
        """Count a change."""
        if change.ref != CONTAINER:
            return
        before, after = _indexed(change.before), _indexed(change.after)
        if before == after:
            return
        if before is not None:
            self._counts[before] -= 1
            if not self._counts[before]:
                del self._counts[before]
        if after is not None:
            self._counts[after] += 1


def _indexed(entry: CachedObject | None) -> tuple[str, str] | None:
    """Return the namespace and the indexed state of a Container; None if there is none."""
    if entry is None:
        return None
    return entry.namespace, dict(entry.index_values)[STATE_INDEX]


def _state(namespace: str, indexed: str) -> CountedState:
    """Read an indexed state."""
    status, stalled, reason = indexed.split("/")
    return CountedState(namespace, status, reason, stalled=bool(stalled))


class ContainerOrder:
    """Places of the Containers of a store that are not being deleted, by namespace."""

    def __init__(self, store: Store) -> None:
        self._orders: dict[str, PlaceOrder] = {}
        store.subscribe(self._changed)

    def of(self, namespace: str) -> PlaceOrder:
        """Return the places of a namespace."""
        return self._orders.get(namespace) or PlaceOrder()

    def _changed(self, change: StoreChange) -> None:
        """Note a Container that came, went, or is being deleted."""
        if change.ref != CONTAINER:
            return
        before = change.before.place if change.before is not None else None
        after = change.after.place if change.after is not None else None
        if before == after:
            return
        order = self._orders.setdefault(change.namespace, PlaceOrder())
        if before is not None:
            order.remove(before)
        if after is not None:
            order.add(after)
        if not order:
            del self._orders[change.namespace]


class DepartedContainers:
    """The Containers of a store that are gone, by namespace, for as long as they have Pods."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: dict[str, set[str]] = {}
        store.subscribe(self._changed)

    def pods(self, namespace: str) -> list[CachedObject]:
        """Return the Pods of Containers of a namespace that are gone."""
        names = self._names.get(namespace, ())
        return [pod for name in names for pod in self._left_of(namespace, name)]

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
        """Note a Container that is gone, and forget it when nothing of it is left.

        Its Pods may end before its Enclaves, and the other way round.
        """
        namespace, before, after = change.namespace, change.before, change.after
        if change.ref == CONTAINER:
            # At the start its Enclaves may have been seen before it.
            known = change.name in self._names.get(namespace, ())
            if known or (before is not None and (after is None or after.uid != before.uid)):
                self._note(namespace, change.name)
        elif change.ref == ENCLAVE and after is not None:
            name = dict(after.index_values)["container"].partition("/")[2]
            if not self._exists(namespace, name, after):
                self._note(namespace, name)
        elif change.ref in {ENCLAVE, POD} and after is None and namespace in self._names:
            for name in tuple(self._names[namespace]):
                self._forget(namespace, name)

    def _note(self, namespace: str, name: str) -> None:
        """Note a name, unless nothing is left of its Container."""
        self._names.setdefault(namespace, set()).add(name)
        self._forget(namespace, name)

    def _forget(self, namespace: str, name: str) -> None:
        """Forget a name of whose Container nothing is left: nothing of it can start any more."""
        if self._left_of(namespace, name) or self._has_enclave(namespace, name):
            return
        self._names[namespace].discard(name)
        if not self._names[namespace]:
            del self._names[namespace]
