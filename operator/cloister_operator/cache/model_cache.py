"""Reads entries of the store as models of the contract, each version of each object once."""

from typing import TypeVar

from cachetools import LRUCache

from cloister_crds.kinds.meta import Resource
from cloister_operator.cache.store import CachedObject

__all__ = ["ModelCache"]

R = TypeVar("R", bound=Resource)

_KEPT = 8192
"""Models that are kept; the ones unused for longest go first."""


class ModelCache:
    """A bounded cache of parsed objects."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._models: LRUCache[str, tuple[int, Resource]] = LRUCache(kept)

    def read(self, kind: type[R], entry: CachedObject) -> R:
        """Answer the model of an entry.

        Parameters
        ----------
        kind
            Its class.
        entry
            Entry of the store.

        Raises
        ------
        pydantic.ValidationError
            When the object breaks a rule of its kind, which the server refuses.
        """
        kept = self._models.get(entry.uid)
        if kept is not None and kept[0] == entry.version and isinstance(kept[1], kind):
            return kept[1]
        model = kind.read(entry.decode())
        self._models[entry.uid] = (entry.version, model)
        return model
