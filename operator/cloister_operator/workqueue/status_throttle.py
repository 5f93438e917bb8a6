"""How often counts over many objects are written, each of them and all of them together."""

from collections import OrderedDict

from cloister_operator.workqueue.keys import Key
from cloister_operator.workqueue.triggers import COUNTS_DELAY

__all__ = ["StatusThrottle"]

_SHORTEST = COUNTS_DELAY.total_seconds()
_LONGEST = 10.0
"""Seconds that a count is late at most, however many objects count."""
_EACH_SECOND = 10
"""Writes of counts a second that are meant to suffice for a cluster where everything changes."""


class StatusThrottle:
    """When the counts of which object were written, by a clock that its callers read.

    Where many objects count, each of them is written more rarely: with 50 Organizations that all
    start Containers, counts were two of twelve writes for each Container.
    """

    def __init__(self) -> None:
        self._written: OrderedDict[Key, float] = OrderedDict()

    def wait(self, key: Key, now: float) -> float:
        """Answer the seconds until the counts of an object may be written; 0 = they may be now.

        Parameters
        ----------
        key
            The object that counts others.
        now
            The time, in seconds.
        """
        self._forget(now)
        if key not in self._written:
            return 0.0
        pause = min(max(len(self._written) / _EACH_SECOND, _SHORTEST), _LONGEST)
        return max(0.0, self._written[key] + pause - now)

    def wrote(self, key: Key, now: float) -> None:
        """Note that the counts of an object were written.

        Parameters
        ----------
        key
            The object that counts others.
        now
            The time, in seconds.
        """
        self._written.pop(key, None)
        self._written[key] = now

    def _forget(self, now: float) -> None:
        """Take off what was written so long ago that nothing waits for it."""
        while self._written and next(iter(self._written.values())) <= now - _LONGEST:
            self._written.popitem(last=False)
