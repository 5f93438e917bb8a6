"""Throttle of status writes that count other objects, for each object and for all together."""

from collections import OrderedDict

from cloister_operator.workqueue.keys import Key
from cloister_operator.workqueue.triggers import COUNTS_DELAY

__all__ = ["StatusThrottle"]

_SHORTEST = COUNTS_DELAY.total_seconds()
_LONGEST = 30.0
"""Seconds that a count is late at most, however many objects there are."""
_EACH_SECOND = 10
"""Writes of counts a second that all objects share when everything changes."""


class StatusThrottle:
    """When the counts of which object were written last, by the clock of the caller.

    An entry is dropped after 30 seconds. Where many objects count, each is written less often: with
    50 Organizations that all start Containers, counts were two of twelve writes for each Container.
    """

    def __init__(self) -> None:
        self._written: OrderedDict[Key, float] = OrderedDict()

    def wait(self, key: Key, now: float) -> float:
        """Return the seconds until the counts of an object may be written; 0 = now."""
        self._drop_old(now)
        if key not in self._written:
            return 0.0
        pause = min(max(len(self._written) / _EACH_SECOND, _SHORTEST), _LONGEST)
        return max(0.0, self._written[key] + pause - now)

    def wrote(self, key: Key, now: float) -> None:
        """Record that the counts of an object were written."""
        # Removed first, so that the entries stay in the order of their times.
        self._written.pop(key, None)
        self._written[key] = now

    def _drop_old(self, now: float) -> None:
        """Drop entries that are too old to delay a write."""
        while self._written and next(iter(self._written.values())) <= now - _LONGEST:
            self._written.popitem(last=False)
