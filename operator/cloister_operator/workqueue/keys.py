"""What work is about: the key of one object that a pass looks at."""

from typing import NamedTuple

__all__ = ["Key"]


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
        """The key as logs show it."""
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name}"
