"""What a pass leaves to do."""

from dataclasses import dataclass
from datetime import timedelta

__all__ = ["DONE", "Result"]


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a pass."""

    requeue_after: timedelta | None = None
    """When to look again although nothing was seen to change; None = on changes alone."""
    wrote: bool = False
    """Whether anything was written."""


DONE = Result()
"""Nothing is left."""
