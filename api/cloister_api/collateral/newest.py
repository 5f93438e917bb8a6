"""The newest answers of the makers of processors, which all replicas share.

An edition says how new an answer is, as a text: of two texts the greater one is newer. An answer
gives way to one of the same edition or a newer one alone, until it is no longer valid.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Update, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cloister_api.ledger.tables.collateral import COLLATERAL_ANSWERS

__all__ = ["CollateralAnswer", "NewestCollateral"]

ROWS = COLLATERAL_ANSWERS
MOST = 2048
"""Answers that are kept."""


@dataclass(frozen=True, slots=True)
class CollateralAnswer:
    """What a maker publishes at an address."""

    edition: str
    """How new it is; empty where that does not matter."""
    body: bytes
    """Its bytes."""
    headers: dict[str, str]
    """The header with the issuer's certificates, where there is one."""
    fetched_at: datetime
    """When it was fetched, in UTC."""
    valid_until: datetime
    """Until when the maker's signature counts, in UTC."""


class NewestCollateral:
    """The table of answers.

    Parameters
    ----------
    engine
        The ledger.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def newer(self, address: str, than: CollateralAnswer | None) -> CollateralAnswer | None:
        """Return the answer at an address if it is of a newer edition.

        Parameters
        ----------
        address
            Address of the maker.
        than
            The answer to compare it with; None = any is newer.

        Raises
        ------
        SQLAlchemyError
            When the ledger does not respond.
        """
        query = select(ROWS).where(ROWS.c.address == address)
        if than is not None:
            query = query.where(ROWS.c.edition > than.edition)
        async with self._engine.connect() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            return None
        return CollateralAnswer(**{name: row[name] for name in CollateralAnswer.__slots__})

    async def offer(
        self, address: str, answer: CollateralAnswer, now: datetime
    ) -> CollateralAnswer | None:
        """Keep an answer, unless there is a newer one that is valid.

        Parameters
        ----------
        address
            Address of the maker.
        answer
            The answer.
        now
            Present time in UTC.

        Returns
        -------
        CollateralAnswer or None
            The newer one; None = the answer was kept.

        Raises
        ------
        SQLAlchemyError
            When the ledger does not respond.
        """
        values = {name: getattr(answer, name) for name in CollateralAnswer.__slots__}
        replace = (
            update(ROWS)
            .where(
                ROWS.c.address == address,
                or_(ROWS.c.edition <= answer.edition, ROWS.c.valid_until <= now),
            )
            .values(values)
        )
        if await self._replaced(replace):
            return None
        try:
            async with self._engine.begin() as connection:
                await connection.execute(insert(ROWS).values(address=address, **values))
                await connection.execute(delete(ROWS).where(ROWS.c.valid_until <= now))
                await self._bound(connection)
        except IntegrityError:
            # There is one: a newer one, or one that another replica has just inserted.
            if await self._replaced(replace):
                return None
            return await self.newer(address, None)
        return None

    async def _replaced(self, replace: Update) -> bool:
        """Return whether there was an answer that gave way."""
        async with self._engine.begin() as connection:
            return (await connection.execute(replace)).rowcount > 0

    async def _bound(self, connection: AsyncConnection) -> None:
        """Forget the least editions beyond what may be kept; those that nobody signed are first."""
        kept = select(func.count()).select_from(ROWS)
        beyond = (await connection.execute(kept)).scalar_one() - MOST
        if beyond > 0:
            least = select(ROWS.c.address).order_by(ROWS.c.edition, ROWS.c.fetched_at).limit(beyond)
            await connection.execute(delete(ROWS).where(ROWS.c.address.in_(least)))
