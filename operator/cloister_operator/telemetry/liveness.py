"""Liveness: heartbeats of the event loop, the watches and the workers.

Written in the event loop, read by the health thread. Health means progress, not an open port: an
operator whose watches are dead must not look healthy.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Liveness", "Stage"]


class Stage(StrEnum):
    """How far the process is."""

    STANDBY = "standby"
    """It waits for the Lease."""
    SYNCING = "syncing"
    """It leads, and its informer cache has not synced yet."""
    WORKING = "working"
    """It leads and reconciles."""
    STOPPING = "stopping"
    """It was told to stop."""


@dataclass(slots=True)
class Liveness:
    """The heartbeats of one process."""

    stale: float
    """Seconds after which a heartbeat is too old."""
    clock: Callable[[], float] = time.monotonic
    """Clock of the heartbeats, in seconds."""
    stage: Stage = Stage.STANDBY
    """How far the process is."""
    _heartbeats: dict[str, tuple[float, float]] = field(default_factory=dict)
    _problems: dict[str, str] = field(default_factory=dict)

    def heartbeat(self, what: str, *, stale: float | None = None) -> None:
        """Record that a part of the process made progress just now.

        Parameters
        ----------
        what
            The part, as `unhealthy_reason` names it.
        stale
            Seconds after which the heartbeat is too old; None = as for all.
        """
        self._heartbeats[what] = (self.clock(), self.stale if stale is None else stale)

    def report_problem(self, what: str, text: str) -> None:
        """Record a problem of a part; an empty text clears it."""
        if text:
            self._problems[what] = text
        else:
            self._problems.pop(what, None)

    def unhealthy_reason(self) -> str:
        """Return what has a problem or was silent for too long; empty = the process is healthy."""
        now = self.clock()
        silent = [
            f"{what} silent for {now - seen:.0f} s"
            for what, (seen, stale) in sorted(self._heartbeats.items())
            if now - seen > stale
        ]
        return "; ".join([*silent, *(text for _, text in sorted(self._problems.items()))])
