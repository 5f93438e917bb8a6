"""Rotates the key that seals values, while facades keep running.

Two sealing keys live during it: the new one seals, both open. First the file gets the new key,
then every sealed value is re-sealed; the previous key is removed only when nothing needs it.
"""

from pathlib import Path

from sqlalchemy import Column, RowMapping, Table, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.ledger.keys.table import SEALED, seal_context

PAGE = 500
"""Rows that are re-sealed in one transaction."""


def begin(path: Path) -> KeyMaterial:
    """Write a new sealing key into the file; a rotation that was begun before is continued.

    Raises
    ------
    MaterialError
        When the file cannot be read or written.
    """
    present = KeyMaterial.read(path)
    if present.previous_key is None:
        present = present.with_new_sealing_key()
        present.replace(path)
    return present


async def reseal(engine: AsyncEngine, material: KeyMaterial) -> int:
    """Seal every value that the previous key sealed with the present one.

    Raises
    ------
    MaterialError
        When a value opens with neither of them.
    """
    done = 0
    for table in SEALED:
        last = None
        while True:
            page = await sealed_page(engine, table, last)
            if not page:
                break
            last = page[-1]["id"]
            done += await reseal_page(engine, material, table, page)
    return done


async def sealed_page(engine: AsyncEngine, table: Table, last: object) -> list[RowMapping]:
    """Return the next rows of a table that hold a sealed value."""
    identifier: Column[object] = table.c.id
    query = select(table).where(table.c.sealed != "").order_by(identifier).limit(PAGE)
    if last is not None:
        query = query.where(identifier > last)
    async with engine.connect() as connection:
        return list((await connection.execute(query)).mappings().all())


async def reseal_page(
    engine: AsyncEngine, material: KeyMaterial, table: Table, page: list[RowMapping]
) -> int:
    """Re-seal the values of some rows; a row that changed meanwhile is left to the next run."""
    changes = [
        (row, resealed)
        for row in page
        if (resealed := material.resealed(row["sealed"], context=seal_context(table, row)))
    ]
    async with engine.begin() as connection:
        for row, resealed in changes:
            same = (table.c.id == row["id"]) & (table.c.sealed == row["sealed"])
            await connection.execute(update(table).where(same).values(sealed=resealed))
    return len(changes)


async def finish(engine: AsyncEngine, path: Path) -> int:
    """Re-seal what is left and remove the previous key from the file.

    Raises
    ------
    MaterialError
        When the file cannot be read or written, or a value does not open.
    """
    material = KeyMaterial.read(path)
    done = 0
    while count := await reseal(engine, material):
        done += count
    if material.previous_key is not None:
        material.without_previous().replace(path)
    return done
