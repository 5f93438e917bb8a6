"""The key of one object in the work queue."""

from typing import NamedTuple

__all__ = ["Key", "group_of"]


class Key(NamedTuple):
    """One object of one kind."""

    kind: str
    """Kind, such as ``Container``."""
    namespace: str
    """Its namespace; empty for kinds without."""
    name: str
    """Its name."""

    @property
    def text(self) -> str:
        """The key as it is logged."""
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name}"


def group_of(key: Key) -> str:
    """Return what takes turns in the queue: a namespace, or a kind without namespaces."""
    return key.namespace or key.kind
