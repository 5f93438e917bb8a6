"""Change counters: how replicas notice each other's writes without reading everything.

A writer counts up first in its transaction and marks the rows it writes with the number. The
counter's row stays locked until the transaction ends, so that numbers become visible in order and
a reader that queries all rows above the last number it saw misses nothing.
"""

from typing import Literal

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from cloister_api.ledger.tables.core import SEQUENCES

__all__ = ["Sequence", "advance", "present"]

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
