"""Sums of utilization in the ledger: written by the collector, read as series.

In the tables a container has a number in ``usage_names``; that belongs to the identifiers of its
organization and of itself, which a restore keeps.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cachetools import LRUCache
from sqlalchemy import BigInteger, Select, delete, func, select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.bulk import add_to_sums
from cloister_api.ledger.usage_tables import AMOUNTS, NAMES, UTILIZATION
from cloister_api.schemas.container_responses import ContainerMetricsResponse, UtilizationPoint
from cloister_api.usage.windows import Span, Window, duration_text, span_of
from cloister_api.utilization.buckets import LEVELS, SeriesKey

logger = logging.getLogger(__name__)

KIND = "container"
_KEPT = 20_000
"""Numbers of containers that are kept at most; the least recently used are read again."""
GIB = 1024 * 1024
"""KiB of a GB of 2^30 bytes."""
KEYS = ("level", "container", "bucket")


class UtilizationStore:
    """The table of sums."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._numbers: LRUCache[SeriesKey, int] = LRUCache(_KEPT)

    async def add(self, sums: Mapping[tuple[int, SeriesKey, int], Sequence[int]]) -> None:
        """Add to sums. What the ledger refuses of one container costs no other its sums.

        Parameters
        ----------
        sums
            By size of the bucket, organization and container, and begin of the bucket.

        Raises
        ------
        SQLAlchemyError
            When the ledger does not respond.
        """
        if not sums:
            return
        try:
            await self._add(sums)
        except (DataError, IntegrityError):
            for container in {container for _, container, _ in sums}:
                own = {place: value for place, value in sums.items() if place[1] == container}
                try:
                    await self._add(own)
                except (DataError, IntegrityError) as error:
                    logger.error(  # noqa: TRY400 - the statement says what was refused
                        "utilization of container %s of organization %s is not kept: the ledger "
                        "refuses it: %s",
                        container[1],
                        container[0],
                        error.orig,
                    )

    async def _add(self, sums: Mapping[tuple[int, SeriesKey, int], Sequence[int]]) -> None:
        async with self._engine.begin() as connection:
            numbers = await connection.run_sync(self._write, sums)
        # Only committed numbers may be cached.
        self._numbers.update(numbers)

    def _write(
        self, connection: Connection, sums: Mapping[tuple[int, SeriesKey, int], Sequence[int]]
    ) -> dict[SeriesKey, int]:
        containers = {container for _, container, _ in sums}
        kept = {each: self._numbers[each] for each in containers if each in self._numbers}
        new = sorted(containers - kept.keys())
        made = {container: number_of(connection, container) for container in new}
        known = kept | made
        rows = [
            (level, known[container], bucket, *amounts)
            for (level, container, bucket), amounts in sums.items()
        ]
        add_to_sums(connection, UTILIZATION, KEYS, AMOUNTS, rows)
        return made

    async def of(
        self, container: SeriesKey, window: Window, now: datetime
    ) -> ContainerMetricsResponse:
        """Return the series of a container.

        Parameters
        ----------
        now
            Present time in UTC.

        Returns
        -------
        ContainerMetricsResponse
            Interval and points (spec 21.13): utilization in percent, memory in GB
            of 2^30 bytes; a point of which nothing is known has null.
        """
        span = span_of(window, now)
        async with self._engine.connect() as connection:
            rows = (await connection.execute(points_of(container, window, span))).all()
        found = {begin: point(*amounts) for begin, *amounts in rows}
        return ContainerMetricsResponse(
            interval=duration_text(window.interval),
            data_points=[
                UtilizationPoint(
                    time=datetime.fromtimestamp(begin, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                    **found.get(begin, NOTHING),
                )
                for begin in span.points
            ],
        )

    async def prune(self, now: datetime) -> None:
        """Delete buckets that no window shows any more.

        Parameters
        ----------
        now
            Present time in UTC.

        Raises
        ------
        SQLAlchemyError
            When the ledger refuses.
        """
        containers = select(NAMES.c.id).where(NAMES.c.kind == KIND)
        for level in LEVELS:
            assert level.keep is not None
            old = delete(UTILIZATION).where(
                UTILIZATION.c.level == level.seconds,
                UTILIZATION.c.container.in_(containers),
                UTILIZATION.c.bucket < int(now.timestamp()) - level.keep,
            )
            async with self._engine.begin() as connection:
                await connection.execute(old)


def name_of(container: SeriesKey) -> str:
    """Return the name that a container's number belongs to."""
    return "/".join(container)


def number_of(connection: Connection, container: SeriesKey) -> int:
    """Return the number of a container; assign one to a new container."""
    same = (NAMES.c.kind == KIND) & (NAMES.c.name == name_of(container))
    found = connection.execute(select(NAMES.c.id).where(same)).scalar()
    if found is None:
        made = NAMES.insert().values(kind=KIND, name=name_of(container)).returning(NAMES.c.id)
        found = connection.execute(made).scalar_one()
    return int(found)


def points_of(container: SeriesKey, window: Window, span: Span) -> Select[Any]:
    """Build the query of a series."""
    begin = (UTILIZATION.c.bucket // window.interval * window.interval).label("begin")
    # Series of older releases have only the identifier of the container as their name.
    names = (name_of(container), container[1])
    numbers = select(NAMES.c.id).where(NAMES.c.kind == KIND, NAMES.c.name.in_(names))
    sums = [func.sum(UTILIZATION.c[name]).cast(BigInteger) for name in AMOUNTS]
    return (
        select(begin, *sums)
        .where(
            UTILIZATION.c.level == window.level,
            UTILIZATION.c.container.in_(numbers),
            UTILIZATION.c.bucket >= span.begin,
            UTILIZATION.c.bucket < span.end,
        )
        .group_by(begin)
    )


def point(
    observed: int,
    cpu_used: int,
    cpu_given: int,
    memory_used: int,
    memory_given: int,
    gpu_observed: int = 0,
    gpu_used: int = 0,
    gpu_given: int = 0,
    gpu_memory_used: int = 0,
    gpu_memory_given: int = 0,
) -> dict[str, float | None]:
    """Return the values of a point from its sums."""
    return {
        "cpu_util": share(cpu_used, cpu_given),
        "cpu_mem_util": share(memory_used, memory_given),
        "cpu_mem_total": gib(memory_given, observed),
        "gpu_util": share(gpu_used, gpu_given),
        "gpu_mem_util": share(gpu_memory_used, gpu_memory_given),
        "gpu_mem_total": gib(gpu_memory_given, gpu_observed),
    }


def gib(given: int, observed: int) -> float | None:
    """Return memory in GB of 2^30 bytes from KiB-milliseconds; None if nothing was observed."""
    return round(given / observed / GIB, 2) if observed else None


def share(used: int, given: int) -> float | None:
    """Return a utilization in percent; None if nothing was given."""
    return round(100 * used / given, 2) if given else None


NOTHING = point(0, 0, 0, 0, 0)
"""A point of which nothing is known."""
