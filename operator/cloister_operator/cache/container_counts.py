"""How many Containers are in which state, counted as the informer cache changes.

The state is an index of the store, so that a scrape decodes no object.
"""

from collections import Counter

from cloister_operator.cache.projections import CONTAINER, STATE_INDEX
from cloister_operator.cache.store import CachedObject, Store, StoreChange
from cloister_operator.telemetry.metrics import CountedState

__all__ = ["ContainerCounts"]


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
    """Return the namespace and the indexed state of a Container; None = there is none."""
    if entry is None:
        return None
    return entry.namespace, dict(entry.index_values)[STATE_INDEX]


def _state(namespace: str, indexed: str) -> CountedState:
    """Read an indexed state."""
    status, stalled, reason = indexed.split("/")
    return CountedState(namespace, status, reason, stalled=bool(stalled))
