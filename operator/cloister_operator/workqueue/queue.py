"""The work queue.

Each key at most once, with delays, backoff, priorities and a throttle of status writes.
"""

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from typing_extensions import override

from cloister_clients.clock import monotonic
from cloister_crds.backoff import Backoff
from cloister_operator.workqueue.triggers import COUNTS_DELAY, Key

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
        """Return the seconds until the counts of an object may be written; 0 means now."""
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


K = TypeVar("K", bound=Hashable)


_BACKOFF = Backoff(first=0.5, longest=120.0, jitter=(0.75, 1.0))
"""Delays of a key whose reconcile failed."""
_NORMAL_IN_A_ROW = 20
"""Keys of normal priority that are given out before one of low priority, when both are due."""


class QueueObserver(Protocol):
    """Receives the measurements of a queue."""

    def added(self) -> None:
        """Count a key that became due."""

    def retried(self) -> None:
        """Count a key that failed and is repeated after a backoff."""

    def taken(self, waited: float) -> None:
        """Record the seconds for which a key was due until a worker took it."""

    def finished(self, worked: float) -> None:
        """Record the seconds for which a worker had a key."""


class _Unobserved(QueueObserver):
    """Drops the measurements."""

    @override
    def added(self) -> None:
        """Drop it."""

    @override
    def retried(self) -> None:
        """Drop it."""

    @override
    def taken(self, waited: float) -> None:
        """Drop it."""

    @override
    def finished(self, worked: float) -> None:
        """Drop it."""


class _Line(Generic[K]):
    """Keys that are due in one priority, with the time since when; their groups take turns.

    A group is there as long as it has keys. One that comes back is the last to have its turn.
    """

    def __init__(self, group_of: Callable[[K], Hashable]) -> None:
        self._group_of = group_of
        self._groups: OrderedDict[Hashable, OrderedDict[K, float]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: K) -> bool:
        return key in self._groups.get(self._group_of(key), ())

    def append(self, key: K, since: float) -> None:
        """Put a key that is not in the line at the end of its group."""
        self._groups.setdefault(self._group_of(key), OrderedDict())[key] = since
        self._size += 1

    def remove(self, key: K) -> float | None:
        """Take a key out; return the time since when it was due, None if it was not in the line."""
        group = self._group_of(key)
        keys = self._groups.get(group)
        if keys is None or key not in keys:
            return None
        self._size -= 1
        since = keys.pop(key)
        if not keys:
            del self._groups[group]
        return since

    def take(self) -> tuple[K, float]:
        """Take the first key of the group whose turn it is."""
        group, keys = next(iter(self._groups.items()))
        key, since = keys.popitem(last=False)
        self._size -= 1
        if keys:
            self._groups.move_to_end(group)
        else:
            del self._groups[group]
        return key, since

    def oldest(self) -> float:
        """Return since when a key has been due longest; the line must not be empty."""
        return min(min(keys.values()) for keys in self._groups.values())


class Schedule(Generic[K]):
    """Which keys are due, delayed, or worked on. Times are seconds of one clock of the caller."""

    def __init__(
        self,
        backoff: Backoff = _BACKOFF,
        *,
        observer: QueueObserver | None = None,
        group_of: Callable[[K], Hashable] = lambda _: None,
    ) -> None:
        self._backoff = backoff
        self._observer = observer or _Unobserved()
        self._normal, self._low = _Line(group_of), _Line(group_of)
        self._normal_in_a_row = 0
        self._delayed: dict[K, float] = {}
        # Entries are never removed from the middle of the heap: `_delayed` says which one counts.
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0
        self._active: dict[K, float] = {}
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}

    def __len__(self) -> int:
        """Return how many keys are due now."""
        return len(self._normal) + len(self._low)

    @property
    def normal(self) -> int:
        """How many keys of normal priority are due."""
        return len(self._normal)

    @property
    def low(self) -> int:
        """How many keys of low priority are due."""
        return len(self._low)

    @property
    def delayed(self) -> int:
        """How many keys wait for their time."""
        return len(self._delayed)

    @property
    def active(self) -> int:
        """How many keys workers have."""
        return len(self._active)

    def longest_work(self, now: float) -> float:
        """Return the seconds for which a worker has had its key longest; 0 if no key is active."""
        # Called from another thread: a copy does not change during the iteration.
        return max((now - began for began in list(self._active.values())), default=0.0)

    def oldest_due(self, now: float) -> float:
        """Return the seconds for which a key has been due longest; 0 if no key is due."""
        return max((now - line.oldest() for line in (self._normal, self._low) if line), default=0)

    def add(self, key: K, now: float, *, low_priority: bool = False) -> None:
        """Make a key due now; while a worker has it, again after that.

        Parameters
        ----------
        low_priority
            Whether others go first; a key that has normal priority keeps it.
        """
        self._delayed.pop(key, None)
        if key in self._active:
            self._again.add(key)
        elif not low_priority:
            since = self._low.remove(key)
            self._enqueue(self._normal, key, now if since is None else since)
        elif key not in self._normal:
            self._enqueue(self._low, key, now)

    def add_at(self, key: K, when: float) -> None:
        """Make a key due at a time, unless it is due earlier anyway."""
        if key in self._normal or key in self._low or key in self._again:
            return
        if key in self._delayed and self._delayed[key] <= when:
            return
        self._delayed[key] = when
        # The counter keeps the order of equal times, and keys from being compared.
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, key))

    def take(self, now: float) -> K | None:
        """Return the next key of normal priority; None if no key is due.

        Groups take turns; of a group it is the one that has been due longest. Low priority has its
        turn when nothing else is due, and now and then even so.
        """
        self._release_delayed(now)
        line = self._next_line()
        if not line:
            return None
        key, since = line.take()
        self._active[key] = now
        self._observer.taken(now - since)
        return key

    def next_due(self) -> float | None:
        """Return when the next delayed key is due; None if no key is delayed."""
        while self._heap and self._delayed.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def done(self, key: K, now: float) -> None:
        """End the work on a key that succeeded; a change that arrived meanwhile makes it due."""
        self._failures.pop(key, None)
        self._finish(key, now)
        if key in self._again:
            self._again.discard(key)
            self._enqueue(self._normal, key, now)

    def failed(self, key: K, now: float) -> float:
        """End the work on a key that failed, and repeat it after a backoff.

        Returns
        -------
        float
            Seconds until it is due again.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = self._backoff.jittered(failures)
        self._finish(key, now)
        # The repetition sees the change that arrived meanwhile as well.
        self._again.discard(key)
        self.add_at(key, now + delay)
        self._observer.retried()
        return delay

    def _enqueue(self, line: _Line[K], key: K, now: float) -> None:
        """Put a key at the end of a line, unless it is in it."""
        if key not in line:
            line.append(key, now)
            self._observer.added()

    def _next_line(self) -> _Line[K]:
        """Choose the priority whose turn it is."""
        if self._normal and (not self._low or self._normal_in_a_row < _NORMAL_IN_A_ROW):
            self._normal_in_a_row += 1
            return self._normal
        self._normal_in_a_row = 0
        return self._low

    def _finish(self, key: K, now: float) -> None:
        """Take a key off the active ones."""
        began = self._active.pop(key, None)
        if began is not None:
            self._observer.finished(now - began)

    def _release_delayed(self, now: float) -> None:
        """Make all delayed keys due whose time has come."""
        while (when := self.next_due()) is not None and when <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._delayed[key]
            self.add(key, when)


class WorkQueue(Generic[K]):
    """A `Schedule` that workers of one event loop wait for."""

    def __init__(
        self,
        schedule: Schedule[K] | None = None,
        *,
        clock: Callable[[], float] = monotonic,
        observer: QueueObserver | None = None,
        group_of: Callable[[K], Hashable] = lambda _: None,
    ) -> None:
        self.schedule = schedule or Schedule(observer=observer, group_of=group_of)
        """Which keys are due."""
        self._clock = clock
        self._changed = asyncio.Event()

    def now(self) -> float:
        """Return the time that delays are counted in, in seconds; any thread may ask."""
        return self._clock()

    def add(self, key: K, *, after: float = 0.0, low_priority: bool = False) -> None:
        """Make a key due, immediately or after some seconds.

        Parameters
        ----------
        after
            Seconds from now.
        low_priority
            Whether others go first when it is due immediately, see `Schedule.add`.
        """
        now = self.now()
        if after > 0:
            self.schedule.add_at(key, now + after)
        else:
            self.schedule.add(key, now, low_priority=low_priority)
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
        """End the work on a key that succeeded."""
        self.schedule.done(key, self.now())
        self._changed.set()

    def failed(self, key: K) -> float:
        """End the work on a key that failed; return the seconds until it is due again."""
        delay = self.schedule.failed(key, self.now())
        self._changed.set()
        return delay
