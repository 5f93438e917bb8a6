"""Price lists, their import, and the cost of events in integer nano-dollars."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Self

from cachetools import LRUCache
from sqlalchemy import Connection, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.usage_tables import PRICE_VERSIONS, PRICES

NANO = 1_000_000_000
PER_MILLION = 1_000_000
REQUEST_METER = "request"
"""Meter of prices for each request of a customer."""
DEAREST = Decimal(1_000_000)
"""Highest price in dollars; keeps sums far below the range of a column."""
FIELDS = frozenset({"service", "operation", "meter", "model", "per1M", "perRequest"})


class PriceFileError(Exception):
    """A price file cannot be used; the message names the entry and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Price:
    """A price."""

    service: str
    """Service of the operation."""
    operation: str
    """Operation."""
    meter: str
    """What is charged; ``request`` for each request of a customer."""
    model: str
    """Model; empty means every model without a price of its own."""
    amount: int
    """Nano-dollars for a million of the meter, or for one request."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The prices of one operation with one model."""

    input: int
    """For a million input tokens."""
    output: int
    """For a million output tokens."""
    cached: int
    """For a million cached input tokens."""
    request: int
    """For a request."""
    others: Mapping[str, int]
    """For a million of each other meter."""


class PriceList:
    """A price list that takes effect at a time."""

    def __init__(self, version: int, effective_from: int, prices: Iterable[Price]) -> None:
        self.version = version
        """Number of the version."""
        self.effective_from = effective_from
        """When it takes effect, in microseconds."""
        self._amounts = {
            (one.service, one.operation, one.meter, one.model): one.amount for one in prices
        }
        # Bounded: models that never existed must not fill the memory.
        self._rates: LRUCache[tuple[str, str, str], Rates] = LRUCache(10_000)

    def rates(self, service: str, operation: str, model: str) -> Rates:
        """Return the prices of an operation with a model."""
        key = (service, operation, model)
        found = self._rates.get(key)
        if found is None:
            found = self._rates[key] = self._compute(service, operation, model)
        return found

    def _compute(self, service: str, operation: str, model: str) -> Rates:
        meters = {
            meter
            for one_service, one_operation, meter, _ in self._amounts
            if (one_service, one_operation) == (service, operation)
        }
        own = {meter for meter in meters if (service, operation, meter, model) in self._amounts}
        amounts = {
            meter: self._amounts[service, operation, meter, model if meter in own else ""]
            for meter in meters
            if meter in own or (service, operation, meter, "") in self._amounts
        }
        if "input_tokens" in own and "cached_input_tokens" not in own:
            # A model with an input price of its own does not inherit the general cached price.
            amounts.pop("cached_input_tokens", None)
        plain = amounts.pop("input_tokens", 0)
        cached = amounts.pop("cached_input_tokens", plain)
        return Rates(
            input=plain,
            output=amounts.pop("output_tokens", 0),
            cached=cached,
            request=amounts.pop(REQUEST_METER, 0),
            others=amounts,
        )


def cost_of(
    rates: Rates, tokens: tuple[int, int, int], requests: int, others: Mapping[str, int] | None
) -> int:
    """Return what an event costs, in nano-dollars, rounded half up once.

    Parameters
    ----------
    tokens
        Input, output and cached input tokens; the cached ones are part of the input.
    others
        Quantities of other meters; None if there is none.
    """
    given, made, cached = tokens
    parts = (given - cached) * rates.input + cached * rates.cached + made * rates.output
    if others:
        for meter, quantity in others.items():
            parts += quantity * rates.others.get(meter, 0)
    return (parts + PER_MILLION // 2) // PER_MILLION + requests * rates.request


class Prices:
    """All price lists by the times of their effect."""

    def __init__(self, lists: Iterable[PriceList]) -> None:
        newest: dict[int, PriceList] = {}
        for one in sorted(lists, key=lambda each: each.version):
            newest[one.effective_from] = one
        self._lists = [newest[at] for at in sorted(newest)]
        self._times = [one.effective_from for one in self._lists]

    def at(self, occurred_at: int) -> PriceList | None:
        """Return the list in effect at a time in microseconds; None if there was none yet.

        Of several lists with the same time the last imported one counts.
        """
        place = bisect_right(self._times, occurred_at)
        return self._lists[place - 1] if place else None

    @classmethod
    def none(cls) -> Self:
        """Return an empty set of prices."""
        return cls(())


def read_prices(document: Any) -> tuple[datetime, tuple[Price, ...]]:
    """Read a price file: ``effectiveFrom`` and the whole list ``prices``.

    Raises
    ------
    PriceFileError
        When it breaks a rule.
    """
    if not isinstance(document, dict) or set(document) != {"effectiveFrom", "prices"}:
        raise PriceFileError("a price file has the keys effectiveFrom and prices, and no others")
    entries = document["prices"]
    if not isinstance(entries, list) or not entries:
        raise PriceFileError("prices is a list with at least one entry")
    prices = [read_price(place, entry) for place, entry in enumerate(entries)]
    keys = [(one.service, one.operation, one.meter, one.model) for one in prices]
    for place, key in enumerate(keys):
        if key in keys[:place]:
            raise PriceFileError(f"prices[{place}]: appears twice: {' '.join(filter(None, key))}")
    return moment_of(document["effectiveFrom"]), tuple(prices)


def moment_of(value: Any) -> datetime:
    """Read the time at which a list takes effect."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise PriceFileError(WHEN) from error
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise PriceFileError(WHEN)
    return value.astimezone(UTC)


WHEN = "effectiveFrom is a time with its zone, such as 2027-01-01T00:00:00Z"


def read_price(place: int, entry: Any) -> Price:
    """Read an entry of the list."""
    where = f"prices[{place}]"
    if not isinstance(entry, dict):
        raise PriceFileError(f"{where}: is not an object")
    if unknown := sorted(set(entry) - FIELDS):
        raise PriceFileError(
            f"{where}: {', '.join(map(str, unknown))} is not a field; there are "
            f"{', '.join(sorted(FIELDS))}"
        )
    words = {}
    for name in ("service", "operation", "meter"):
        words[name] = word(
            where, name, entry.get(name, REQUEST_METER if name == "meter" else None), 64
        )
    given = [name for name in ("per1M", "perRequest") if name in entry]
    if len(given) != 1:
        raise PriceFileError(f"{where}: name either per1M or perRequest, in dollars")
    if (given[0] == "perRequest") != (words["meter"] == REQUEST_METER):
        raise PriceFileError(f"{where}: perRequest goes without a meter, per1M with one")
    model = word(where, "model", entry["model"], 253) if "model" in entry else ""
    return Price(model=model, amount=nano(where, entry[given[0]]), **words)


def word(where: str, name: str, value: Any, most: int) -> str:
    """Read a name."""
    if not isinstance(value, str) or not 1 <= len(value) <= most or "\x00" in value:
        raise PriceFileError(f"{where}.{name}: a text of 1 to {most} characters is needed")
    return value


def nano(where: str, value: Any) -> int:
    """Read dollars as nano-dollars, exactly."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise PriceFileError(f"{where}: the price is a number of dollars, such as 0.15")
    try:
        dollars = Decimal(str(value))
    except InvalidOperation as error:
        raise PriceFileError(f"{where}: the price is a number of dollars, such as 0.15") from error
    if not dollars.is_finite() or not 0 <= dollars <= DEAREST:
        raise PriceFileError(f"{where}: the price must be between 0 and {DEAREST} dollars")
    exact = dollars * NANO
    if exact != exact.to_integral_value():
        raise PriceFileError(f"{where}: the price has at most nine digits after the point")
    return int(exact)


def lists_of(versions: Sequence[tuple[int, int]], rows: Iterable[tuple[int, Price]]) -> Prices:
    """Build price lists from rows of the ledger.

    Parameters
    ----------
    versions
        Number and time of each list.
    rows
        Number of its list and each price.
    """
    prices: dict[int, list[Price]] = {number: [] for number, _ in versions}
    for number, price in rows:
        prices[number].append(price)
    return Prices(PriceList(number, at, prices[number]) for number, at in versions)


async def import_prices(
    engine: AsyncEngine, effective_from: datetime, prices: tuple[Price, ...], now: datetime
) -> int:
    """Write a price list as a new version and return its number.

    Costs of events that were counted before do not change.

    Parameters
    ----------
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
    """Return the number of the newest list; 0 if there is none."""
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
