"""Queries of usage, from the sums: by window, by key, over time.

Source: spec 10.2 to 10.4. Keys are reported by their
names; two keys of one name, such as a deleted one and its successor, are summed under it.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Select, func, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cloister_api.ledger.tables.core import API_KEYS
from cloister_api.ledger.tables.usage import NAMES, POINTS, ROLLUPS
from cloister_api.schemas.account_responses import (
    KeyUsageResponse,
    ModelUsage,
    NamedKeyUsage,
    PaidModelUsage,
    TimeSeriesResponse,
    UsagePoint,
    UsageResponse,
)
from cloister_api.usage.levels import EVER
from cloister_api.usage.windows import BucketRun, Span, Window, cover, duration_text, span_of

__all__ = ["UsageQueries"]

NANO = 1_000_000_000
COUNTED = ("input_tokens", "output_tokens", "requests", "cost")
"""Columns that queries return."""
PAIR = 2**32
"""Factor of the number of a key, so that one number represents key and model: SQLite
sorts sums by one number in less time than by two."""
UNNAMED = "unknown"
"""Name of the model of events that report none."""
Counts = tuple[int, int, int, int]
"""Input and output tokens, requests, nano-dollars."""


class UsageSum:
    """Totals that are added up."""

    __slots__ = ("cost", "input", "output", "requests")

    def __init__(self) -> None:
        self.input = self.output = self.requests = self.cost = 0

    def add(self, given: int, made: int, requests: int, cost: int) -> None:
        """Add counts."""
        self.input += given
        self.output += made
        self.requests += requests
        self.cost += cost

    def counts(self) -> dict[str, int]:
        """Return the counts under names of the API."""
        return {
            "tokens": self.input + self.output,
            "input_tokens": self.input,
            "output_tokens": self.output,
            "requests": self.requests,
        }

    @property
    def dollars(self) -> float:
        """Cost in dollars."""
        return self.cost / NANO


class UsageQueries:
    """Queries over the sums."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def aggregated(
        self, organization_id: str, window: Window | None, now: datetime
    ) -> UsageResponse:
        """Return what an organization used, by key and model.

        Parameters
        ----------
        organization_id
            Identifier of the Organization.
        window
            The window; None = all time.
        now
            Present time in UTC.
        """
        async with self._engine.connect() as connection:
            number = await number_of(connection, organization_id)
            query = summed(number, runs_of(window, now))
            rows = (await connection.execute(query)).all() if number is not None else []
            models = await models_of(connection)
            names = await key_names(connection, organization_id)
        return by_key(by_name(rows, names, models))

    async def of_key(
        self, organization_id: str, key_id: int, window: Window | None, now: datetime
    ) -> KeyUsageResponse:
        """Return what one key used.

        Parameters
        ----------
        organization_id
            Identifier of the Organization.
        key_id
            Number of the key.
        window
            The window; None = all time.
        now
            Present time in UTC.
        """
        found = UsageSum()
        async with self._engine.connect() as connection:
            number = await number_of(connection, organization_id)
            if number is not None:
                query = summed(number, runs_of(window, now), key_id)
                for _, *values in (await connection.execute(query)).all():
                    found.add(*values)
        return KeyUsageResponse(
            prompt_tokens=found.input,
            completion_tokens=found.output,
            requests=found.requests,
            cost=found.dollars,
        )

    async def series(
        self, organization_id: str, window: Window, now: datetime
    ) -> TimeSeriesResponse:
        """Return what an organization used over time, by model.

        Parameters
        ----------
        organization_id
            Identifier of the Organization.
        window
            The window.
        now
            Present time in UTC.
        """
        span = span_of(window, now)
        async with self._engine.connect() as connection:
            number = await number_of(connection, organization_id)
            query = points_of(number, window, span)
            rows = (await connection.execute(query)).all() if number is not None else []
            names = await models_of(connection)
        totals = {begin: UsageSum() for begin in span.points}
        models: dict[int, dict[str, UsageSum]] = {begin: {} for begin in span.points}
        for begin, model, *values in rows:
            totals[begin].add(*values)
            models[begin].setdefault(names[model], UsageSum()).add(*values)
        return TimeSeriesResponse(
            data_points=[
                UsagePoint(
                    time=datetime.fromtimestamp(begin, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                    **totals[begin].counts(),
                    models={
                        name: ModelUsage(**one.counts())
                        for name, one in sorted(models[begin].items())
                    },
                )
                for begin in span.points
            ],
            interval=duration_text(window.interval),
        )


def by_name(
    rows: Iterable[Any], names: Mapping[int, str], models: Mapping[int, str]
) -> dict[str, dict[str, Counts]]:
    """Add sums up by the names of key and model; a response may have ten thousand of them.

    Parameters
    ----------
    rows
        Rows of `summed`.
    names
        Names of keys by their number.
    models
        Names of models by their number.
    """
    found: dict[str, dict[str, Counts]] = {}
    for pair, given, made, requests, cost in rows:
        # A row may be all zeros: what a longer bucket added, shorter ones subtracted.
        if given or made or requests or cost:
            key, number = divmod(pair, PAIR)
            own, model = found.setdefault(names[key], {}), models[number]
            have = own.get(model)
            if have is None:
                own[model] = (given, made, requests, cost)
            else:
                own[model] = (have[0] + given, have[1] + made, have[2] + requests, have[3] + cost)
    return found


def by_key(found: Mapping[str, Mapping[str, Counts]]) -> UsageResponse:
    """Return the record of aggregated usage (spec 10.2)."""
    total = UsageSum()
    keys: dict[str, NamedKeyUsage] = {}
    for name, parts in sorted(found.items()):
        one = UsageSum()
        models: dict[str, PaidModelUsage] = {}
        for model, (given, made, requests, cost) in sorted(parts.items()):
            one.add(given, made, requests, cost)
            models[model] = PaidModelUsage(
                tokens=given + made,
                input_tokens=given,
                output_tokens=made,
                requests=requests,
                cost=cost / NANO,
            )
        total.add(one.input, one.output, one.requests, one.cost)
        keys[name] = NamedKeyUsage(
            total_tokens=one.input + one.output,
            total_input_tokens=one.input,
            total_output_tokens=one.output,
            total_requests=one.requests,
            cost=one.dollars,
            models=models,
        )
    return UsageResponse(**total.counts(), cost=total.dollars, keys=keys)


def runs_of(window: Window | None, now: datetime) -> list[BucketRun]:
    """Return the buckets that a window is made of."""
    if window is None:
        return [BucketRun(EVER, 0, 2 * EVER, 1)]
    span = span_of(window, now)
    return cover(span.begin, span.end)


def summed(
    organization: int | None, runs: list[BucketRun], key_id: int | None = None
) -> Select[Any]:
    """Build the query of sums by pair of key and model (`PAIR`), of all keys or of one."""
    selects = []
    pair = (ROLLUPS.c.key_id * PAIR + ROLLUPS.c.model).label("pair")
    for run in runs:
        columns = [ROLLUPS.c[name] for name in COUNTED]
        values = columns if run.sign > 0 else [(-one).label(one.name) for one in columns]
        query = select(pair, *values).where(
            ROLLUPS.c.level == run.size, ROLLUPS.c.organization == organization
        )
        bucket = ROLLUPS.c.bucket
        if key_id is None:
            query = query.where(bucket >= run.begin, bucket < run.end)
        else:
            # Bucket by bucket: the sums of one key are adjacent only within each.
            buckets = range(run.begin, run.end, run.size)
            query = query.where(bucket.in_(buckets), ROLLUPS.c.key_id == key_id)
        selects.append(query)
    rows = union_all(*selects).subquery().c
    return select(rows.pair, *added(rows)).group_by(rows.pair)


def points_of(organization: int | None, window: Window, span: Span) -> Select[Any]:
    """Build the query of a time series."""
    interval = window.interval
    begin = (POINTS.c.bucket // interval * interval).label("begin")
    return (
        select(begin, POINTS.c.model, *added(POINTS.c))
        .where(
            POINTS.c.level == window.level,
            POINTS.c.organization == organization,
            POINTS.c.bucket >= span.begin,
            POINTS.c.bucket < span.end,
        )
        .group_by(begin, POINTS.c.model)
    )


def added(columns: Any) -> list[Any]:
    """Return the sums that queries return, as whole numbers."""
    return [func.sum(columns[name]).cast(BigInteger) for name in COUNTED]


async def number_of(connection: AsyncConnection, organization_id: str) -> int | None:
    """Return the number of an organization; None = it has no usage."""
    same = (NAMES.c.kind == "organization") & (NAMES.c.name == organization_id)
    return (await connection.execute(select(NAMES.c.id).where(same))).scalar()


async def models_of(connection: AsyncConnection) -> dict[int, str]:
    """Return the names of all models by their number."""
    query = select(NAMES.c.id, NAMES.c.name).where(NAMES.c.kind == "model")
    return {number: name or UNNAMED for number, name in (await connection.execute(query)).all()}


async def key_names(connection: AsyncConnection, organization_id: str) -> dict[int, str]:
    """Return the names of an organization's keys, deleted ones as well."""
    query = select(API_KEYS.c.id, API_KEYS.c.name).where(
        API_KEYS.c.organization_id == organization_id
    )
    return {row.id: row.name for row in (await connection.execute(query)).all()}
