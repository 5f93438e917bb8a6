"""Which remote hosts are left alone for a while, because they do not respond in time. Pure.

One organization alone cannot have a host left alone for the others: who runs a slow project on a
shared host would stop everybody else there. So a host that timed out twice in a row for one
organization is left alone for that one, and for all once it timed out for two of them.
"""

from dataclasses import dataclass, field
from datetime import datetime

from cachetools import LRUCache

from cloister_crds.lifecycle.backoff import backoff_delay

__all__ = ["CircuitBreaker"]

_TIMEOUTS = 2
"""Timeouts in a row after which a host is left alone."""
_REMEMBERED = 4096
"""Circuits that are remembered at most; the least recently used are dropped first."""


@dataclass(slots=True)
class _Circuit:
    """How one host responded lately, to one organization or to all."""

    timeouts: int = 0
    """Timeouts in a row of one organization."""
    organizations: set[str] = field(default_factory=set)
    """Who met a timeout since the last response."""
    opened: int = 0
    """How often in a row it was opened."""
    until: datetime | None = None
    """Until when the host is left alone; None = the circuit is closed."""
    probing: bool = False
    """Whether the one lookup runs that may find the host responding again."""

    def trip(self, now: datetime) -> None:
        """Leave the host alone: 10 s, then twice as long after each failed probe, at most 5 min."""
        self.opened += 1
        self.until = now + backoff_delay(self.opened)
        self.probing = False


class CircuitBreaker:
    """The circuits of a lane: closed, open, or half-open with one lookup that probes."""

    def __init__(self) -> None:
        # The organization None stands for all together.
        self._circuits: LRUCache[tuple[str, str | None], _Circuit] = LRUCache(_REMEMBERED)

    def open_count(self, now: datetime) -> int:
        """Return how many circuits are open."""
        return sum(each.until is not None and each.until > now for each in self._circuits.values())

    def blocked_until(self, organization: str, host: str, now: datetime) -> datetime | None:
        """Return until when a host is left alone; None = it may be queried."""
        ends = [each.until for each in self._of(organization, host) if each.until is not None]
        return max((each for each in ends if each > now), default=None)

    def may_start(self, organization: str, host: str, now: datetime) -> bool:
        """Return whether a lookup may start: nothing is open, and nobody else probes."""
        circuits = self._of(organization, host)
        open_ = any(each.until is not None and each.until > now for each in circuits)
        return not open_ and not any(each.probing for each in circuits)

    def started(self, organization: str, host: str) -> None:
        """Note that a lookup started: where the circuit was open, it is the probe."""
        for each in self._of(organization, host):
            each.probing = each.until is not None

    def responded(self, organization: str, host: str) -> None:
        """Note that a host responded, whatever it said: its circuits are closed."""
        self._circuits.pop((host, organization), None)
        self._circuits.pop((host, None), None)

    def abandoned(self, organization: str, host: str) -> None:
        """Note that a lookup was cancelled: the next one probes."""
        for each in self._of(organization, host):
            each.probing = False

    def timed_out(self, organization: str, host: str, now: datetime) -> list[str | None]:
        """Note that a host did not respond in time.

        Returns
        -------
        list
            Whose circuit opened: an organization, None for that of all.
        """
        if not host:
            return []
        opened: list[str | None] = []
        for owner in (organization, None):
            circuit = self._circuits.setdefault((host, owner), _Circuit())
            circuit.timeouts += 1
            circuit.organizations.add(organization)
            witnesses = circuit.timeouts if owner else len(circuit.organizations)
            failed_probe = circuit.until is not None and circuit.probing
            if failed_probe or (circuit.until is None and witnesses >= _TIMEOUTS):
                circuit.trip(now)
                opened.append(owner)
        return opened

    def _of(self, organization: str, host: str) -> list[_Circuit]:
        """Return the circuits that a lookup depends on."""
        found = (self._circuits.get((host, owner)) for owner in (organization, None))
        return [each for each in found if each is not None]
