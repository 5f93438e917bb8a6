"""From two looks at a Pod to sums in buckets of time, as pure functions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cloister_api.usage.levels import DAY, HOUR, Level
from cloister_api.utilization.exposition import ResourceReading

__all__ = [
    "LEVELS",
    "Amounts",
    "PodSample",
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

Amounts = tuple[int, int, int, int, int]
"""In the order of the columns `AMOUNTS` of the ledger."""


@dataclass(frozen=True, slots=True)
class PodSample:
    """What was seen of a Pod at one time."""

    at: float
    """When, in Unix seconds of our clock."""
    readings: Mapping[str, ResourceReading]
    """Its containers of the file that run, by name."""


@dataclass(frozen=True, slots=True)
class UsageInterval:
    """What a container used over a stretch of time."""

    container: str
    """Identifier of the container."""
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
    container: str,
    cpus: float,
    memory_mb: float,
    longest: float,
) -> UsageInterval | None:
    """Return what was used between two looks.

    Parameters
    ----------
    before
        The look before; None = this is the first one.
    now
        This look.
    container
        Identifier of the container.
    cpus
        Processors that it has.
    memory_mb
        Memory that it has, in MB of 2^20 bytes.
    longest
        Seconds between two looks after which nothing is said of the time between: memory was not
        seen in it.

    Returns
    -------
    Stretch or None
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
    memory = [sum(one.memory for one in look.readings.values()) for look in (before, now)]
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
    """Return whether every counter was read again since.

    The kubelet reads counters at times of its own and may tell an old one twice; the look before
    then goes on to count, so that nothing is spread over too short a time.

    Parameters
    ----------
    before
        The look before.
    now
        This look.
    """
    common = before.readings.keys() & now.readings.keys()
    return all(now.readings[name].at > before.readings[name].at for name in common)


def rate(before: ResourceReading | None, now: ResourceReading, seconds: float) -> float:
    """Return the processors that a container used on average.

    A counter that went back is that of a container that was started again: all it shows was used
    since.
    """
    if before is None:
        return now.cpu / seconds
    used = now.cpu - before.cpu if now.cpu >= before.cpu else now.cpu
    return used / (now.at - before.at)


def add_interval(sums: dict[tuple[int, str, int], list[int]], stretch: UsageInterval) -> None:
    """Spread what was used over the buckets of every size that the stretch touches.

    Its ends are taken to whole milliseconds first: were each bucket's part rounded by itself, what
    was used and what was given would no longer fit each other in a bucket of a few milliseconds.

    Parameters
    ----------
    sums
        Sums by size of the bucket, container, and the Unix second that the bucket begins with.
    stretch
        What was used.
    """
    begin, end = round(stretch.begin * 1000), round(stretch.end * 1000)
    for level in LEVELS:
        for bucket, milliseconds in touched(begin, end, level.seconds):
            place = (level.seconds, stretch.container, bucket)
            present = sums.setdefault(place, [0] * 5)
            for index, amount in enumerate(amounts(stretch, milliseconds)):
                present[index] += amount


def amounts(stretch: UsageInterval, milliseconds: int) -> Amounts:
    """Return what some milliseconds of a stretch add."""
    return (
        milliseconds,
        round(stretch.cpu * milliseconds),
        round(stretch.cpus * milliseconds),
        round(stretch.memory * milliseconds),
        round(stretch.memory_given * milliseconds),
    )


def touched(begin: int, end: int, size: int) -> Iterable[tuple[int, int]]:
    """Return the buckets of a size in seconds between two milliseconds, and how many of each."""
    bucket = begin // 1000 // size * size
    while bucket * 1000 < end:
        yield bucket, min(end, (bucket + size) * 1000) - max(begin, bucket * 1000)
        bucket += size
