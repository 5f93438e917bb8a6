"""The result of a reconcile."""

from dataclasses import dataclass
from datetime import timedelta

__all__ = ["DONE", "Result"]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a reconcile that did not fail."""

    requeue_after: timedelta | None = None
    """When to reconcile again although nothing changes; None = on changes only."""
    wrote: bool = False
    """Whether anything was written."""


DONE = Result()
"""Nothing was written, and nothing is left to do."""
