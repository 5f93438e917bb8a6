"""From the usage of a Pod to sums in buckets of time. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cloister_api.usage.windows import DAY, HOUR, Level
from cloister_api.utilization.samples import GpuTotals, PodUsage

MINUTE = 60
LEVELS = (
    Level(5, 40 * MINUTE),
    Level(MINUTE, 2 * HOUR),
    Level(15 * MINUTE, 2 * DAY),
    Level(HOUR, 35 * DAY),
    Level(DAY, 100 * DAY),
)
"""Sizes of buckets and how long they are kept: a little longer than the windows that read them
(`cloister_api.usage.windows`)."""
LONGEST = 600.0
"""Seconds of the longest window that counts, and after which it is too old to."""
AHEAD = 60.0
"""Seconds that the clock of a node may be ahead."""

SeriesKey = tuple[str, str]
"""Identifiers of an organization and of a container of it."""
Amounts = tuple[float, float, float, float, float, float, float, float, float, float]
"""In the order of the columns `AMOUNTS` of the ledger."""
NONE = (0.0, 0.0, 0.0, 0.0, 0.0)
"""Amounts of processors and memory, or of GPUs, of which nothing was observed."""


@dataclass(frozen=True, slots=True)
class UsageInterval:
    """What a container used over an interval of time."""

    container: SeriesKey
    """Whose usage it is."""
    begin: float
    """Unix second that it begins with."""
    end: float
    """Unix second after it."""
    cpu: float
    """Processors in use on average."""
    cpus: float
    """Processors that it has."""
    memory: float
    """Memory in use in KiB on average."""
    memory_given: float
    """Memory that it has, in KiB."""

    @property
    def amounts(self) -> Amounts:
        """What a millisecond of it adds to the sums."""
        return (1.0, self.cpu, self.cpus, self.memory, self.memory_given, *NONE)


@dataclass(frozen=True, slots=True)
class GpuSample:
    """The GPUs of a Pod at one time."""

    at: float
    """When, in Unix seconds of the facade's clock."""
    totals: GpuTotals
    """Their readings, added up."""


@dataclass(frozen=True, slots=True)
class GpuInterval:
    """What a container used of its GPUs over an interval of time."""

    container: SeriesKey
    """Whose usage it is."""
    begin: float
    """Unix second that it begins with."""
    end: float
    """Unix second after it."""
    busy: float
    """GPUs in use on average."""
    gpus: float
    """GPUs that tell how much they are in use."""
    memory: float
    """Memory in use in KiB on average."""
    memory_given: float
    """Memory that they have, in KiB; 0 if unknown."""

    @property
    def amounts(self) -> Amounts:
        """What a millisecond of it adds to the sums."""
        known = 1.0 if self.memory_given else 0.0
        return (*NONE, known, self.busy * 1000, self.gpus * 1000, self.memory, self.memory_given)


def gpu_interval_between(
    before: GpuSample | None, now: GpuSample, *, container: SeriesKey, longest: float
) -> GpuInterval | None:
    """Return what was used of GPUs between two samples, each of which is a value at its time.

    Parameters
    ----------
    before
        The sample before; None if this is the first one.
    longest
        Seconds between two samples after which the time between is a gap.

    Returns
    -------
    GpuInterval or None
        None when there is nothing to compare with.
    """
    if before is None or not 0 < now.at - before.at <= longest:
        return None
    one, two = before.totals, now.totals
    return GpuInterval(
        container=container,
        begin=before.at,
        end=now.at,
        busy=(one.busy + two.busy) / 2,
        gpus=(one.busy_of + two.busy_of) / 2,
        memory=(one.memory + two.memory) / 2,
        memory_given=(one.memory_given + two.memory_given) / 2,
    )


def interval_of(
    usage: PodUsage,
    names: Collection[str],
    *,
    since: float,
    now: float,
    container: SeriesKey,
    cpus: float,
    memory_mb: float,
) -> UsageInterval | None:
    """Return what a Pod used, as far as it is not counted yet.

    Parameters
    ----------
    since
        Unix second up to which its usage is counted already, or does not count.
    now
        Present time in Unix seconds.
    memory_mb
        Memory that it has, in MB of 2^20 bytes.

    Returns
    -------
    UsageInterval or None
        None when there is nothing new, or the node's clock or the window cannot be right.
    """
    own = [used for name, used in usage.containers.items() if name in names]
    begin = max(usage.end - usage.window, since)
    plausible = usage.window <= LONGEST and now - LONGEST <= usage.end <= now + AHEAD
    if not own or begin >= usage.end or not plausible:
        return None
    return UsageInterval(
        container=container,
        begin=begin,
        end=usage.end,
        cpu=sum(used.cpu for used in own),
        cpus=cpus,
        memory=sum(used.memory for used in own) / 1024,
        memory_given=memory_mb * 1024,
    )


def add_interval(
    sums: dict[tuple[int, SeriesKey, int], list[int]], interval: UsageInterval | GpuInterval
) -> None:
    """Spread what was used over the buckets of every size that the interval overlaps.

    Its ends are rounded to whole milliseconds first: if each bucket's part were rounded on its own,
    used and given amounts would no longer match in a bucket of a few milliseconds.

    Parameters
    ----------
    sums
        Sums by size of the bucket, container, and the Unix second that the bucket begins with.
    """
    begin, end = round(interval.begin * 1000), round(interval.end * 1000)
    amounts = interval.amounts
    for level in LEVELS:
        for bucket, milliseconds in overlapped(begin, end, level.seconds):
            place = (level.seconds, interval.container, bucket)
            present = sums.setdefault(place, [0] * len(amounts))
            for index, amount in enumerate(amounts):
                present[index] += round(amount * milliseconds)


def overlapped(begin: int, end: int, size: int) -> Iterable[tuple[int, int]]:
    """Yield the buckets of a size in seconds between two times, and the milliseconds in each."""
    bucket = begin // 1000 // size * size
    while bucket * 1000 < end:
        yield bucket, min(end, (bucket + size) * 1000) - max(begin, bucket * 1000)
        bucket += size
