"""From two samples of a Pod to sums in buckets of time. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cloister_api.usage.levels import DAY, HOUR, Level
from cloister_api.utilization.exposition import ResourceReading

__all__ = [
    "LEVELS",
    "Amounts",
    "PodSample",
    "SeriesKey",
    "UsageInterval",
    "add_interval",
    "interval_between",
    "is_newer",
]

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

SeriesKey = tuple[str, str]
"""Identifiers of an organization and of a container of it."""
Amounts = tuple[int, int, int, int, int]
"""In the order of the columns `AMOUNTS` of the ledger."""


@dataclass(frozen=True, slots=True)
class PodSample:
    """The readings of a Pod at one time."""

    at: float
    """When, in Unix seconds of the facade's clock."""
    readings: Mapping[str, ResourceReading]
    """Its containers of the file that run, by name."""


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


def interval_between(
    before: PodSample | None,
    now: PodSample,
    *,
    container: SeriesKey,
    cpus: float,
    memory_mb: float,
    longest: float,
) -> UsageInterval | None:
    """Return what was used between two samples.

    Parameters
    ----------
    before
        The sample before; None = this is the first one.
    now
        This sample.
    container
        Whose usage it is.
    cpus
        Processors that it has.
    memory_mb
        Memory that it has, in MB of 2^20 bytes.
    longest
        Seconds between two samples after which the time between is a gap: memory was not sampled
        in it.

    Returns
    -------
    UsageInterval or None
        None when there is nothing to compare with.
    """
    if before is None or not before.readings or not now.readings:
        return None
    seconds = now.at - before.at
    if not 0 < seconds <= longest or not is_newer(before, now):
        return None
    cpu = sum(
        rate(before.readings.get(name), reading, seconds) for name, reading in now.readings.items()
    )
    memory = [sum(one.memory for one in sample.readings.values()) for sample in (before, now)]
    return UsageInterval(
        container=container,
        begin=before.at,
        end=now.at,
        cpu=cpu,
        cpus=cpus,
        memory=sum(memory) / 2 / 1024,
        memory_given=memory_mb * 1024,
    )


def is_newer(before: PodSample, now: PodSample) -> bool:
    """Return whether every counter was read again since the sample before.

    The kubelet reads counters at times of its own and may report an old value twice; then the
    sample before stays the base, so that nothing is spread over too short a time.
    """
    common = before.readings.keys() & now.readings.keys()
    return all(now.readings[name].at > before.readings[name].at for name in common)


def rate(before: ResourceReading | None, now: ResourceReading, seconds: float) -> float:
    """Return the processors that a container used on average.

    A counter that decreased is that of a restarted container: all of its value was used since.
    """
    if before is None:
        return now.cpu / seconds
    used = now.cpu - before.cpu if now.cpu >= before.cpu else now.cpu
    return used / (now.at - before.at)


def add_interval(
    sums: dict[tuple[int, SeriesKey, int], list[int]], interval: UsageInterval
) -> None:
    """Spread what was used over the buckets of every size that the interval overlaps.

    Its ends are rounded to whole milliseconds first: if each bucket's part were rounded by itself,
    used and given amounts would no longer match in a bucket of a few milliseconds.

    Parameters
    ----------
    sums
        Sums by size of the bucket, container, and the Unix second that the bucket begins with.
    interval
        What was used.
    """
    begin, end = round(interval.begin * 1000), round(interval.end * 1000)
    for level in LEVELS:
        for bucket, milliseconds in overlapped(begin, end, level.seconds):
            place = (level.seconds, interval.container, bucket)
            present = sums.setdefault(place, [0] * 5)
            for index, amount in enumerate(amounts(interval, milliseconds)):
                present[index] += amount


def amounts(interval: UsageInterval, milliseconds: int) -> Amounts:
    """Return what some milliseconds of an interval add to the sums."""
    return (
        milliseconds,
        round(interval.cpu * milliseconds),
        round(interval.cpus * milliseconds),
        round(interval.memory * milliseconds),
        round(interval.memory_given * milliseconds),
    )


def overlapped(begin: int, end: int, size: int) -> Iterable[tuple[int, int]]:
    """Yield the buckets of a size in seconds between two times, and the milliseconds in each."""
    bucket = begin // 1000 // size * size
    while bucket * 1000 < end:
        yield bucket, min(end, (bucket + size) * 1000) - max(begin, bucket * 1000)
        bucket += size
