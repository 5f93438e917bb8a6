"""Which of several facades does what one of them is to do.

A facade holds a task for a while and renews that; when it is gone another takes the task over. Two
may do it for a moment, when their clocks differ: what is done must bear that.
"""

from datetime import datetime

from sqlalchemy import or_, update
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.tables.utilization import LEASES

__all__ = ["Lease"]


class Lease:
    """A facade's hold of one task."""

    def __init__(self, engine: AsyncEngine, name: str, holder: str, seconds: float) -> None:
        """Prepare it; nothing is held yet.

        Parameters
        ----------
        engine
            The ledger.
        name
            Name of the task; a migration has made its row.
        holder
            Identifier of this facade.
        seconds
            How long it is held without being renewed.
        """
        self._engine = engine
        self._name = name
        self._holder = holder
        self._length = round(seconds * 1000)

    async def hold(self, now: datetime) -> bool:
        """Take or renew the task; False = another facade has it.

        Parameters
        ----------
        now
            Present time in UTC.

        Raises
        ------
        SQLAlchemyError
            When the ledger does not answer.
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
