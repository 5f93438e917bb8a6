"""What the tables of keys share: how they are read, and that a value is sealed for its row."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping, Select, Table, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cloister_api.ledger.keys.key_material import KeySealer
from cloister_api.ledger.tables import ADMIN_KEYS, API_KEYS
from cloister_api.ledger.usage_tables import REPORTERS

SEALED: dict[Table, tuple[str, ...]] = {
    ADMIN_KEYS: ("organization", "id"),
    API_KEYS: ("organization", "key_index"),
    REPORTERS: ("id",),
}
"""Tables with sealed values, and the columns of its row that each value is bound to."""


def seal_context(table: Table, row: RowMapping | Mapping[str, Any]) -> str:
    """Return what a sealed value is bound to: its table and the columns of `SEALED`."""
    parts = (row[name] for name in SEALED[table])
    return "|".join((table.name, *(p.hex() if isinstance(p, bytes) else p for p in parts)))


class KeyTable:
    """A table of keys."""

    def __init__(self, engine: AsyncEngine, material: KeySealer) -> None:
        self._engine = engine
        self._material = material

    def _sealed(self, table: Table, row: dict[str, Any], value: str) -> dict[str, Any]:
        """Return a new row with a value that can only be read in it."""
        return {**row, "sealed": self._material.seal(value, context=seal_context(table, row))}

    def _value(self, table: Table, row: RowMapping | Mapping[str, Any]) -> str:
        """Return the sealed value of a row."""
        return self._material.unseal(row["sealed"], context=seal_context(table, row))

    async def _rows(self, query: Select[Any]) -> Sequence[RowMapping]:
        async with self._engine.connect() as connection:
            return (await connection.execute(query)).mappings().all()

    async def _row(self, query: Select[Any]) -> RowMapping | None:
        async with self._engine.connect() as connection:
            return (await connection.execute(query)).mappings().one_or_none()


async def revoke(
    connection: AsyncConnection, table: Table, key_id: str, now: datetime, **values: str
) -> bool:
    """Revoke a key permanently; False when there is none, or it was revoked before."""
    known = (table.c.id == key_id, table.c.revoked_at.is_(None))
    done = await connection.execute(update(table).where(*known).values(revoked_at=now, **values))
    return bool(done.rowcount)
