"""The queue of keys to look at: each at most once, with delays and back-off.

`Schedule` decides what is due and knows no event loop; `WorkQueue` waits for it. While a key is
being worked on it is not given out again: what comes meanwhile is remembered.

There are two lines. What somebody waits for stands in the first one; what can wait a little, such
as work that nobody has begun, in the second. So of many things that come at once the first are
finished early instead of all of them late.
"""

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from cloister_crds.backoff import Backoff

__all__ = ["Schedule", "WorkQueue"]

K = TypeVar("K", bound=Hashable)


_BACKOFF = Backoff(first=0.5, longest=120.0, jitter=(0.75, 1.0))
"""Delays of a key whose reconcile failed."""
_AHEAD = 20
"""Keys of the first line that are given out before one of the second line, when both have some."""


class Schedule(Generic[K]):
    """Which keys are due, delayed, or worked on."""

    def __init__(self, backoff: Backoff = _BACKOFF) -> None:
        self._backoff = backoff
        self._ready: OrderedDict[K, None] = OrderedDict()
        self._low_priority: OrderedDict[K, None] = OrderedDict()
        self._ahead = 0
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0
        self._active: set[K] = set()
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}

    def __len__(self) -> int:
        """Answer how many keys are due now."""
        return len(self._ready) + len(self._low_priority)

    @property
    def delayed(self) -> int:
        """How many keys wait for their time."""
        return len(self._due)

    @property
    def active(self) -> int:
        """How many keys are worked on."""
        return len(self._active)

    def add(self, key: K, *, low_priority: bool = False) -> None:
        """Make a key due now; while it is worked on, again after that.

        Parameters
        ----------
        key
            What is to be looked at.
        low_priority
            Whether it may stand in the second line; one that stands in the first stays there.
        """
        self._due.pop(key, None)
        if key in self._active:
            self._again.add(key)
        elif not low_priority:
            self._low_priority.pop(key, None)
            self._ready.setdefault(key)
        elif key not in self._ready:
            self._low_priority.setdefault(key)

    def add_at(self, key: K, when: float) -> None:
        """Make a key due at a time, unless it is due earlier anyway."""
        if key in self._ready or key in self._low_priority or key in self._again:
            return
        if key in self._due and self._due[key] <= when:
            return
        self._due[key] = when
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, key))

    def take(self, now: float) -> K | None:
        """Give out the key that has been due longest in the first line; None = none is due.

        The second line moves when the first one is empty, and a little even when it never is.
        """
        self._ripen(now)
        line = self._line()
        if not line:
            return None
        key, _ = line.popitem(last=False)
        self._active.add(key)
        return key

    def _line(self) -> OrderedDict[K, None]:
        """Choose the line whose turn it is."""
        if self._ready and (not self._low_priority or self._ahead < _AHEAD):
            self._ahead += 1
            return self._ready
        self._ahead = 0
        return self._low_priority

    def next_due(self) -> float | None:
        """Answer when the next delayed key is due; None = none is delayed."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def done(self, key: K) -> None:
        """End the work on a key that went well."""
        self._failures.pop(key, None)
        self._finish(key)

    def failed(self, key: K, now: float) -> float:
        """End the work on a key that failed, and try again later.

        Returns
        -------
        float
            Seconds until it is due again.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = self._backoff.jittered(failures)
        self._active.discard(key)
        self._again.discard(key)
        self.add_at(key, now + delay)
        return delay

    def _finish(self, key: K) -> None:
        """Take a key off the active ones; what came meanwhile makes it due."""
        self._active.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._ready.setdefault(key)

    def _ripen(self, now: float) -> None:
        """Make all delayed keys due whose time has come."""
        while (when := self.next_due()) is not None and when <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            self.add(key)


class WorkQueue(Generic[K]):
    """A `Schedule` that workers of one event loop wait for."""

    def __init__(
        self, schedule: Schedule[K] | None = None, *, clock: Callable[[], float] | None = None
    ) -> None:
        self.schedule = schedule or Schedule()
        """What is due."""
        self._clock = clock
        self._changed = asyncio.Event()

    def now(self) -> float:
        """Answer the time that delays are counted in: the event loop's, in seconds."""
        return self._clock() if self._clock else asyncio.get_running_loop().time()

    def add(self, key: K, *, after: float = 0.0, low_priority: bool = False) -> None:
        """Make a key due, at once or after some seconds.

        Parameters
        ----------
        key
            What is to be looked at.
        after
            Seconds from now.
        low_priority
            Whether one that is due at once may wait for others, see `Schedule.add`.
        """
        if after > 0:
            self.schedule.add_at(key, self.now() + after)
        else:
            self.schedule.add(key, low_priority=low_priority)
        self._changed.set()

    async def take(self) -> K:
        """Wait for a key that is due; `done` or `failed` must follow."""
        while True:
            key = self.schedule.take(self.now())
            if key is not None:
                return key
            self._changed.clear()
            due = self.schedule.next_due()
            timeout = None if due is None else max(0.0, due - self.now())
            try:
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def done(self, key: K) -> None:
        """End the work on a key that went well."""
        self.schedule.done(key)
        self._changed.set()

    def failed(self, key: K) -> float:
        """End the work on a key that failed; answer the seconds until it is due again."""
        delay = self.schedule.failed(key, self.now())
        self._changed.set()
        return delay
