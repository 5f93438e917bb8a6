"""Cache of parsed objects: each version of an object is validated once."""

from typing import TypeVar

from cachetools import LRUCache

from cloister_crds.kinds.meta import Resource
from cloister_operator.cache.store import CachedObject

__all__ = ["ModelCache"]

R = TypeVar("R", bound=Resource)

_KEPT = 8192
"""Models that are cached at most; the least recently used are dropped first."""


class ModelCache:
    """A bounded cache of parsed objects."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._models: LRUCache[str, tuple[int, Resource]] = LRUCache(kept)

    def read(self, kind: type[R], entry: CachedObject) -> R:
        """Return an object of the store as a model of its kind.

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

    def forget(self, uid: str) -> None:
        """Drop the model of an object that is gone."""
        self._models.pop(uid, None)
