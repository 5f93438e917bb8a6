"""Queries of usage, from the sums: by window, by key, by model, over time."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Select, Table, func, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cloister_api.ledger.tables import API_KEYS
from cloister_api.ledger.usage_tables import NAMES, POINTS, ROLLUPS
from cloister_api.schemas.accounts import (
    BreakdownPoint,
    BreakdownResponse,
    KeyUsageResponse,
    ModelUsage,
    NamedKeyUsage,
    PaidModelUsage,
    TimeSeriesResponse,
    UsageGroup,
    UsagePoint,
    UsageResponse,
    UsageRest,
)
from cloister_api.usage.windows import EVER, BucketRun, Span, Window, cover, duration_text, span_of

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
        window
            The window; None means all time.
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
        window
            The window; None means all time.
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
    """Return the number of an organization; None if it has no usage."""
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


MOST_GROUPS = 50
"""Groups that are shown one by one."""
Group = tuple[str | None, str | None]
"""Names of key and model; None if it is not grouped by that."""


class BreakdownBy(StrEnum):
    """What usage is grouped by."""

    KEY = "key"
    MODEL = "model"
    BOTH = "key,model"

    @property
    def table(self) -> Table:
        """The sums that it is read from."""
        return POINTS if self is BreakdownBy.MODEL else ROLLUPS

    def level_of(self, window: Window) -> int:
        """Return the size of the buckets that the points of a window are added up from."""
        return window.level if self is BreakdownBy.MODEL else window.key_level

    @property
    def number(self) -> ColumnElement[int]:
        """The number of a group: of the key and the model, as `PAIR` joins them."""
        columns = self.table.c
        if self is BreakdownBy.MODEL:
            return columns.model.label("number")
        key = columns.key_id * PAIR
        return (key if self is BreakdownBy.KEY else key + columns.model).label("number")


class Breakdowns:
    """Queries of usage by group."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def of(
        self, organization_id: str, window: Window, by: BreakdownBy, now: datetime
    ) -> BreakdownResponse:
        """Return what an organization used over time, by group.

        The groups that cost most are shown one by one, the others as one sum: so points add up to
        those of the time series, however many keys there are.

        Parameters
        ----------
        now
            Present time in UTC.
        """
        span = span_of(window, now)
        points: dict[int, dict[Group, UsageSum]] = {begin: {} for begin in span.points}
        totals: dict[int, UsageSum] = {begin: UsageSum() for begin in span.points}
        async with self._engine.connect() as connection:
            number = await number_of(connection, organization_id)
            if number is not None:
                names = await key_names(connection, organization_id)
                models = await models_of(connection)
                for begin, group, *values in await rows(
                    connection, costliest(number, window, span, by)
                ):
                    name = named(group, by, names, models)
                    points[begin].setdefault(name, UsageSum()).add(*values)
                # Later than the groups, so that what is reported meanwhile is among the others.
                for begin, *values in await rows(connection, totals_of(number, window, span)):
                    totals[begin].add(*values)
        return BreakdownResponse(
            data_points=[point(begin, points[begin], totals[begin]) for begin in span.points],
            interval=duration_text(window.interval),
        )


async def rows(connection: AsyncConnection, query: Select[Any]) -> Iterable[Any]:
    """Return the rows of a query."""
    return (await connection.execute(query)).all()


def within(table: Table, organization: int, level: int, span: Span) -> list[ColumnElement[bool]]:
    """Return the conditions of sums of a span."""
    return [
        table.c.level == level,
        table.c.organization == organization,
        table.c.bucket >= span.begin,
        table.c.bucket < span.end,
    ]


def totals_of(organization: int, window: Window, span: Span) -> Select[Any]:
    """Build the query of all usage by point."""
    begin = (POINTS.c.bucket // window.interval * window.interval).label("begin")
    conditions = within(POINTS, organization, window.level, span)
    return select(begin, *added(POINTS.c)).where(*conditions).group_by(begin)


def costliest(organization: int, window: Window, span: Span, by: BreakdownBy) -> Select[Any]:
    """Build the query of the groups that cost most, by point."""
    table, level = by.table, by.level_of(window)
    # One expression: PostgreSQL compares those of SELECT and GROUP BY with their parameters.
    number = by.number
    conditions = within(table, organization, level, span)
    cost = func.sum(table.c.cost).desc()
    tokens = func.sum(table.c.input_tokens + table.c.output_tokens).desc()
    chosen = (
        select(number)
        .where(*conditions)
        .group_by(number)
        .order_by(cost, tokens, number)
        .limit(MOST_GROUPS)
        .subquery()
    )
    begin = (table.c.bucket // window.interval * window.interval).label("begin")
    return (
        select(begin, number, *added(table.c))
        .where(*conditions, number.in_(select(chosen.c.number)))
        .group_by(begin, number)
    )


def named(
    number: int, by: BreakdownBy, names: Mapping[int, str], models: Mapping[int, str]
) -> Group:
    """Return the names of a group."""
    key, model = divmod(number, PAIR)
    return (
        None if by is BreakdownBy.MODEL else names[key],
        None if by is BreakdownBy.KEY else models[model],
    )


def point(begin: int, groups: Mapping[Group, UsageSum], total: UsageSum) -> BreakdownPoint:
    """Return the record of a point."""
    rest = UsageSum()
    rest.add(total.input, total.output, total.requests, total.cost)
    for one in groups.values():
        rest.add(-one.input, -one.output, -one.requests, -one.cost)
    anything = rest.input or rest.output or rest.requests or rest.cost
    return BreakdownPoint(
        time=datetime.fromtimestamp(begin, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        groups=[
            UsageGroup(key=key, model=model, **one.counts(), cost=one.dollars)
            for (key, model), one in sorted(groups.items(), key=lambda each: str(each[0]))
        ],
        others=UsageRest(**rest.counts(), cost=rest.dollars) if anything else None,
    )
