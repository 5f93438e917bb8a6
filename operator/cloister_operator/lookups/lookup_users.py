"""Which objects need which lookups, so that a result goes with the last object that needed it."""

from cloister_crds.lifecycle.state.observed import Need
from cloister_operator.workqueue.keys import Key

__all__ = ["LookupUsers"]


class LookupUsers:
    """Lookups by the key of an object, and keys by lookup."""

    def __init__(self) -> None:
        self._needs: dict[Key, set[Need]] = {}
        self._keys: dict[Need, set[Key]] = {}

    def __contains__(self, need: Need) -> bool:
        """Return whether any object needs a lookup."""
        return need in self._keys

    def add(self, need: Need, key: Key) -> None:
        """Record that an object needs a lookup."""
        self._needs.setdefault(key, set()).add(need)
        self._keys.setdefault(need, set()).add(key)

    def forget_need(self, need: Need) -> None:
        """Drop a lookup whose result was dropped; who still needs it requests it again."""
        for key in self._keys.pop(need, ()):
            needs = self._needs[key]
            needs.discard(need)
            if not needs:
                del self._needs[key]

    def forget_key(self, key: Key) -> list[Need]:
        """Drop an object that is gone; return the lookups that nobody needs any more."""
        unneeded = []
        for need in self._needs.pop(key, ()):
            keys = self._keys[need]
            keys.discard(key)
            if not keys:
                del self._keys[need]
                unneeded.append(need)
        return unneeded
