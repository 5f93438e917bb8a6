"""How replicas of the facade share a ledger: leases, heartbeats, change counters."""

from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cloister_api.ledger.tables import REPLICAS, SEQUENCES
from cloister_api.ledger.usage_tables import LEASES


class Lease:
    """A facade's lease of one task."""

    def __init__(self, engine: AsyncEngine, name: str, holder: str, seconds: float) -> None:
        """Prepare the lease; it is not held yet.

        Parameters
        ----------
        name
            Name of the task; a migration has created its row.
        seconds
            How long it is held without renewal.
        """
        self._engine = engine
        self._name = name
        self._holder = holder
        self._length = round(seconds * 1000)

    async def hold(self, now: datetime) -> bool:
        """Acquire or renew the lease; False if another facade holds it.

        Parameters
        ----------
        now
            Present time in UTC.

        Raises
        ------
        SQLAlchemyError
            When the ledger does not respond.
        """
        present = round(now.timestamp() * 1000)
        free = or_(LEASES.c.holder == self._holder, LEASES.c.until < present)
        taken = (
            update(LEASES)
            .where(LEASES.c.name == self._name, free)
            .values(holder=self._holder, until=present + self._length)
        )
        async with self._engine.begin() as connection:
            return bool((await connection.execute(taken)).rowcount)


BEAT_SECONDS = 5.0
"""Seconds between two heartbeats."""
GONE_SECONDS = 15.0
"""A replica without a heartbeat for this long does not count."""
FORGOTTEN = timedelta(hours=1)
"""Rows older than this are deleted."""


class Replicas:
    """The table of replicas."""

    def __init__(self, engine: AsyncEngine, own: str) -> None:
        self._engine = engine
        self._own = own

    async def beat(self, now: datetime) -> int:
        """Write this replica's heartbeat, and return how many replicas run."""
        row = REPLICAS.c.id == self._own
        async with self._engine.begin() as connection:
            done = await connection.execute(update(REPLICAS).where(row).values(seen_at=now))
            if not done.rowcount:
                await connection.execute(insert(REPLICAS).values(id=self._own, seen_at=now))
                old = REPLICAS.c.seen_at < now - FORGOTTEN
                await connection.execute(delete(REPLICAS).where(old))
            fresh = REPLICAS.c.seen_at > now - timedelta(seconds=GONE_SECONDS)
            found = await connection.execute(select(func.count()).where(fresh))
            return int(found.scalar_one())

    async def leave(self) -> None:
        """Delete this replica's row at its shutdown."""
        async with self._engine.begin() as connection:
            await connection.execute(delete(REPLICAS).where(REPLICAS.c.id == self._own))


Sequence = Literal["api_keys", "usage"]
"""Names of the counters."""


async def advance(connection: AsyncConnection, name: Sequence) -> int:
    """Increment a counter and return its value; other writers wait until the transaction ends."""
    await connection.execute(
        update(SEQUENCES).where(SEQUENCES.c.name == name).values(value=SEQUENCES.c.value + 1)
    )
    return await present(connection, name)


async def present(connection: AsyncConnection, name: Sequence) -> int:
    """Return the number of the last change."""
    found = await connection.execute(select(SEQUENCES.c.value).where(SEQUENCES.c.name == name))
    return int(found.scalar_one())
