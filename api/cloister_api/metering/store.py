"""Slices of run time in the ledger, and the pure division of time into them.

Times are Unix times.
"""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

from sqlalchemy import BigInteger, Executable, Table, delete, func, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.tables import RUNTIME_ENCLAVES, RUNTIME_SLICES
from cloister_api.ledger.usage_tables import LEASES

SECONDS = 300
"""Length of a slice."""
WIDTH = SECONDS * 1_000_000
INTEGER = 2**31
"""First number that a column of integers does not hold."""


@dataclass(frozen=True, slots=True)
class ServedEnclave:
    """An enclave that serves or served."""

    enclave: str
    """uid of the Enclave."""
    organization: str
    """Identifier of its Organization; empty if it is no longer known."""
    container: str
    """Identifier of its container."""
    name: str
    """Name of its container."""
    cpus: int
    """Processors."""
    memory_mb: int
    """Memory in MB."""
    gpus: int
    """GPUs."""
    begin: int
    """When it was promoted, in microseconds."""
    end: int | None
    """When it was demoted, in microseconds; None if it serves."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of time in which an enclave served, within the bounds of one slice."""

    begin: int
    """Second that the slice begins with, a multiple of `SECONDS`."""
    microseconds: int
    """How long it served in it; more than 0."""


def unfit(served: ServedEnclave) -> str:
    """Return which value of an enclave the ledger has no room for; empty if all fit."""
    texts = {"enclave": 64, "organization": 64, "container": 64, "name": 253}
    for field, longest in texts.items():
        value = getattr(served, field)
        if len(value) > longest or not value.isprintable():
            return f"{field} {value[:longest]!r} is longer than {longest} or not printable"
    for field in ("cpus", "memory_mb", "gpus"):
        if not 0 <= getattr(served, field) < INTEGER:
            return f"{field} is {getattr(served, field)}"
    return ""


def due_until(served: ServedEnclave, now: int) -> int:
    """Return until when an enclave is metered.

    Parameters
    ----------
    now
        The present, in microseconds.

    Returns
    -------
    int
        In microseconds: its end if it has one, else the end of the last complete slice.
    """
    if served.end is not None:
        return max(served.end, served.begin)
    return max(now // WIDTH * WIDTH, served.begin)


def slices_of(begin: int, end: int) -> Iterator[Slice]:
    """Cut a span of time into slices; their sum is the span.

    Parameters
    ----------
    begin
        Begin in microseconds.
    end
        End in microseconds.
    """
    while begin < end:
        bound = begin // WIDTH * WIDTH
        until = min(end, bound + WIDTH)
        yield Slice(bound // 1_000_000, until - begin)
        begin = until


def slice_id(enclave: str, begin: int) -> bytes:
    """Return the identifier of an enclave's slice, which makes writing it idempotent.

    Parameters
    ----------
    begin
        Second that the slice begins with.
    """
    return hashlib.blake2b(f"{enclave}/{begin}".encode(), digest_size=16).digest()


logger = logging.getLogger(__name__)

LEASE = "runtime"
"""Name of the lease in the ledger."""
PAGE = 100
"""Enclaves that one transaction meters."""
ROWS = 1_000
"""Slices of one statement."""
SHOWN = 5


@dataclass(frozen=True, slots=True)
class RunTime:
    """How long a container served with one size."""

    container: str
    """Identifier of the container."""
    name: str
    """Its name."""
    cpus: int
    """Processors."""
    memory_mb: int
    """Memory in MB."""
    gpus: int
    """GPUs."""
    microseconds: int
    """How long it served."""


class MeteringStore:
    """The tables of run time."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def meter(
        self, everyone: Sequence[ServedEnclave], now: int
    ) -> dict[str, tuple[int, bool]]:
        """Write how long enclaves served until now; idempotent.

        What the ledger refuses of one Enclave costs no other its run time.

        Parameters
        ----------
        everyone
            The enclaves, as they are in the cache; `PAGE` at most, as one transaction meters them.
        now
            The present, in Unix microseconds.

        Returns
        -------
        dict
            By uid of the Enclave, until when it is metered and whether that is its end; without
            those that were refused.

        Raises
        ------
        SQLAlchemyError
            When the ledger does not respond.
        """
        try:
            return await self._write(everyone, now)
        except (DataError, IntegrityError):
            # One by one only after a failure: the bulk write is much cheaper.
            done: dict[str, tuple[int, bool]] = {}
            for served in everyone:
                try:
                    done |= await self._write([served], now)
                except (DataError, IntegrityError) as error:
                    logger.error(  # noqa: TRY400 - the statement says what was refused
                        "run time of Enclave %s of organization %s is not metered: the ledger "
                        "refuses it: %s",
                        served.enclave,
                        served.organization,
                        error.orig,
                    )
            return done

    async def _write(
        self, everyone: Sequence[ServedEnclave], now: int
    ) -> dict[str, tuple[int, bool]]:
        async with self._engine.begin() as connection:
            return await connection.run_sync(write, everyone, now)

    async def of(self, organization: str, begin: int, end: int) -> list[RunTime]:
        """Return how long the containers of an organization served, in slices that begin in a span.

        Parameters
        ----------
        begin
            Unix second that the span begins with.
        end
            Unix second after it.
        """
        one, every = RUNTIME_SLICES.c, RUNTIME_ENCLAVES.c
        by = (every.container, every.name, every.cpus, every.memory_mb, every.gpus)
        query = (
            select(*by, func.sum(one.microseconds).cast(BigInteger))
            .join_from(RUNTIME_SLICES, RUNTIME_ENCLAVES, one.enclave == every.enclave)
            .where(every.organization == organization, one.begin >= begin, one.begin < end)
            .group_by(*by)
            .order_by(*by)
        )
        async with self._engine.connect() as connection:
            return [RunTime(*row) for row in (await connection.execute(query)).all()]


def write(
    connection: Connection, everyone: Sequence[ServedEnclave], now: int
) -> dict[str, tuple[int, bool]]:
    """Meter enclaves in one transaction."""
    # This serializes facades, so that none writes from an older state than another has seen.
    turn = update(LEASES).where(LEASES.c.name == LEASE).values(until=LEASES.c.until)
    connection.execute(turn)
    rows = RUNTIME_ENCLAVES.c
    uids = [served.enclave for served in everyone]
    found = connection.execute(
        select(rows.enclave, rows.metered_until, rows.closed).where(rows.enclave.in_(uids))
    )
    known = {row.enclave: (row.metered_until, row.closed) for row in found}
    return {
        served.enclave: meter_one(connection, served, known.get(served.enclave), now)
        for served in everyone
    }


def meter_one(
    connection: Connection, served: ServedEnclave, state: tuple[int, bool] | None, now: int
) -> tuple[int, bool]:
    """Meter one enclave; return until when, and whether that is its end."""
    if state is not None and state[1]:
        return state
    until, closed = due_until(served, now), served.end is not None
    if state is None:
        first = RUNTIME_ENCLAVES.insert().values(
            enclave=served.enclave,
            organization=served.organization,
            container=served.container,
            name=served.name,
            cpus=served.cpus,
            memory_mb=served.memory_mb,
            gpus=served.gpus,
            metered_until=until,
            closed=closed,
        )
        connection.execute(first)
    before = served.begin if state is None else state[0]
    if until < before and not closed:
        return before, False
    if until < before:
        # It was demoted before the time that was metered already, as when its node was lost.
        own = RUNTIME_SLICES.c.enclave == served.enclave
        # The slice that holds the end is written again, unless nothing of it is left.
        late = RUNTIME_SLICES.c.begin >= until // (SECONDS * 1_000_000) * SECONDS
        connection.execute(delete(RUNTIME_SLICES).where(own, late))
        before = until
    whole = max(served.begin, before // (SECONDS * 1_000_000) * SECONDS * 1_000_000)
    write_slices(connection, served.enclave, whole, until)
    if state is not None:
        same = RUNTIME_ENCLAVES.c.enclave == served.enclave
        connection.execute(
            update(RUNTIME_ENCLAVES).where(same).values(metered_until=until, closed=closed)
        )
    return until, closed


def write_slices(connection: Connection, enclave: str, begin: int, end: int) -> None:
    """Write slices; an existing one gets the newer length."""
    rows = [
        {
            "id": slice_id(enclave, one.begin),
            "enclave": enclave,
            "begin": one.begin,
            "microseconds": one.microseconds,
        }
        for one in slices_of(begin, end)
    ]
    for first in range(0, len(rows), ROWS):
        connection.execute(upsert(connection, RUNTIME_SLICES), rows[first : first + ROWS])


def upsert(connection: Connection, table: Table) -> Executable:
    """Build the statement that writes slices, in the SQL of the database that is in use."""
    statement = import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert(table)
    made: Executable = statement.on_conflict_do_update(
        index_elements=["id"], set_={"microseconds": statement.excluded.microseconds}
    )
    return made


def check_runtime(connection: Connection) -> Iterable[str]:
    """Find impossible slices: too long, of no enclave, or of two that served a container."""
    one, every = RUNTIME_SLICES.c, RUNTIME_ENCLAVES.c
    total = func.sum(one.microseconds)
    crowded = (
        select(every.organization, every.container, one.begin)
        .select_from(RUNTIME_SLICES)
        .outerjoin(RUNTIME_ENCLAVES, one.enclave == every.enclave)
        .group_by(every.organization, every.container, one.begin)
        .having((total > SECONDS * 1_000_000) | (func.min(one.microseconds) <= 0))
        .limit(SHOWN)
    )
    for row in connection.execute(crowded):
        yield f"run time: container {row.container} has an impossible sum in slice {row.begin}"
    bounds = (
        select(every.enclave)
        .select_from(RUNTIME_SLICES)
        .outerjoin(RUNTIME_ENCLAVES, one.enclave == every.enclave)
        .group_by(every.enclave, every.metered_until)
        .having(
            every.metered_until.is_(None) | (func.max(one.begin) * 1_000_000 >= every.metered_until)
        )
        .limit(SHOWN)
    )
    for row in connection.execute(bounds):
        yield f"run time: enclave {row.enclave} has slices after its end, or is not known"
