"""Signs of life: when the loop, the watches and the passes last did something.

Written in the event loop, read by the health thread. Health means progress, not an open port: an
operator whose watches are dead must not look well.
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
    """It leads and reads the cluster."""
    WORKING = "working"
    """It leads, and knows the cluster."""
    STOPPING = "stopping"
    """It was told to end."""


@dataclass(slots=True)
class Liveness:
    """The signs of one process."""

    stale: float
    """Seconds after which a sign is too old."""
    clock: Callable[[], float] = time.monotonic
    """Clock of the signs, in seconds."""
    stage: Stage = Stage.STANDBY
    """How far the process is."""
    _heartbeats: dict[str, tuple[float, float]] = field(default_factory=dict)
    _problems: dict[str, str] = field(default_factory=dict)

    def heartbeat(self, what: str, *, stale: float | None = None) -> None:
        """Note that something happened just now.

        Parameters
        ----------
        what
            What happened, in words for a complaint.
        stale
            Seconds after which the sign is too old; None = as for all.
        """
        self._heartbeats[what] = (self.clock(), self.stale if stale is None else stale)

    def report_problem(self, what: str, text: str) -> None:
        """Note what is wrong with something; an empty text takes it back."""
        if text:
            self._problems[what] = text
        else:
            self._problems.pop(what, None)

    def unhealthy_reason(self) -> str:
        """Answer what is wrong or has been silent for too long; empty when all is well."""
        now = self.clock()
        silent = [
            f"{what} silent for {now - seen:.0f} s"
            for what, (seen, stale) in sorted(self._heartbeats.items())
            if now - seen > stale
        ]
        return "; ".join([*silent, *(text for _, text in sorted(self._problems.items()))])
