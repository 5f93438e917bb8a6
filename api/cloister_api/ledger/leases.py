"""Leases: which of several facades does a task that only one should do.

A facade holds the lease of a task and renews it; when it is gone another takes the task over. Two
may hold it for a moment if their clocks differ, so that the tasks must tolerate concurrency.
"""

from datetime import datetime

from sqlalchemy import or_, update
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.tables.utilization import LEASES

__all__ = ["Lease"]


class Lease:
    """A facade's lease of one task."""

    def __init__(self, engine: AsyncEngine, name: str, holder: str, seconds: float) -> None:
        """Prepare the lease; it is not held yet.

        Parameters
        ----------
        engine
            The ledger.
        name
            Name of the task; a migration has created its row.
        holder
            Identifier of this facade.
        seconds
            How long it is held without renewal.
        """
        self._engine = engine
        self._name = name
        self._holder = holder
        self._length = round(seconds * 1000)

    async def hold(self, now: datetime) -> bool:
        """Acquire or renew the lease; False = another facade holds it.

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
