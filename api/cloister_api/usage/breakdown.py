"""Usage and cost over time by key, by model or by both, of the groups that cost most."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cloister_api.ledger.tables.usage import POINTS, ROLLUPS
from cloister_api.schemas.account_responses import (
    BreakdownPoint,
    BreakdownResponse,
    UsageGroup,
    UsageRest,
)
from cloister_api.usage.queries import PAIR, UsageSum, added, key_names, models_of, number_of
from cloister_api.usage.windows import Span, Window, duration_text, span_of

__all__ = ["MOST_GROUPS", "BreakdownBy", "Breakdowns"]

MOST_GROUPS = 50
"""Groups that are shown one by one."""
Group = tuple[str | None, str | None]
"""Names of key and model; None = it is not grouped by that."""


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
        organization_id
            Identifier of the Organization.
        window
            The window.
        by
            What it is grouped by.
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
