"""Price lists in the ledger: import, and reading all of them."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.tables.usage import PRICE_VERSIONS, PRICES
from cloister_api.usage.prices import Price, Prices, lists_of

__all__ = ["import_prices", "price_count", "read_all"]


async def import_prices(
    engine: AsyncEngine, effective_from: datetime, prices: tuple[Price, ...], now: datetime
) -> int:
    """Write a price list as a new version and return its number.

    Costs of events that were counted before do not change.

    Parameters
    ----------
    engine
        The ledger.
    effective_from
        When it takes effect.
    prices
        The whole list.
    now
        Present time in UTC.
    """
    at = round(effective_from.timestamp() * 1_000_000)
    async with engine.begin() as connection:
        made = await connection.execute(
            insert(PRICE_VERSIONS)
            .values(effective_from=at, imported_at=now)
            .returning(PRICE_VERSIONS.c.id)
        )
        version = int(made.scalar_one())
        rows: list[dict[str, Any]] = [
            {
                "version": version,
                "service": one.service,
                "operation": one.operation,
                "meter": one.meter,
                "model": one.model,
                "amount": one.amount,
            }
            for one in prices
        ]
        await connection.execute(insert(PRICES), rows)
    return version


def price_count(connection: Connection) -> int:
    """Return the number of the newest list; 0 = there is none."""
    query = select(PRICE_VERSIONS.c.id).order_by(PRICE_VERSIONS.c.id.desc()).limit(1)
    return int(connection.execute(query).scalar() or 0)


def read_all(connection: Connection) -> Prices:
    """Read all price lists."""
    versions = connection.execute(select(PRICE_VERSIONS.c.id, PRICE_VERSIONS.c.effective_from))
    rows = connection.execute(
        select(
            PRICES.c.version,
            PRICES.c.service,
            PRICES.c.operation,
            PRICES.c.meter,
            PRICES.c.model,
            PRICES.c.amount,
        )
    )
    return lists_of(
        [(row.id, row.effective_from) for row in versions],
        [
            (row.version, Price(row.service, row.operation, row.meter, row.model, row.amount))
            for row in rows
        ],
    )
