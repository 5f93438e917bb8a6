"""The replicas of the facade that run on one ledger, by their own heartbeats."""

from datetime import datetime, timedelta

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.tables.core import REPLICAS

__all__ = ["BEAT_SECONDS", "Replicas"]

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
