"""Reporters of usage and their secrets."""

import secrets
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.keys.key_material import KeySealer
from cloister_api.ledger.tables.usage import REPORTERS

__all__ = ["Reporter", "ReporterExistsError", "Reporters", "seal_context"]

SECRET_BYTES = 32


class ReporterExistsError(Exception):
    """There is, or was, a reporter of that name."""


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who may report usage."""

    id: str
    """Its name."""
    created_at: datetime
    """When it was created, in UTC."""
    revoked_at: datetime | None
    """When it was revoked permanently, in UTC; None = it was not."""
    secret: bytes | None = field(default=None, repr=False)
    """What it signs with; None = not read."""


class Reporters:
    """The table of reporters."""

    def __init__(self, engine: AsyncEngine, material: KeySealer) -> None:
        self._engine = engine
        self._material = material

    async def create(self, name: str, now: datetime) -> str:
        """Create a reporter and return its secret, which is shown only once.

        Raises
        ------
        ReporterExistsError
            When the name is or was used.
        """
        secret = secrets.token_urlsafe(SECRET_BYTES)
        row = {
            "id": name,
            "sealed": self._material.seal(secret, context=seal_context(name)),
            "created_at": now,
        }
        try:
            async with self._engine.begin() as connection:
                await connection.execute(insert(REPORTERS).values(row))
        except IntegrityError as error:
            raise ReporterExistsError(name) from error
        return secret

    async def all(self) -> list[Reporter]:
        """Return all reporters by name, without secrets."""
        columns = (REPORTERS.c.id, REPORTERS.c.created_at, REPORTERS.c.revoked_at)
        async with self._engine.connect() as connection:
            rows = (await connection.execute(select(*columns).order_by(REPORTERS.c.id))).all()
        return [Reporter(row.id, row.created_at, row.revoked_at) for row in rows]

    async def find(self, name: str) -> Reporter | None:
        """Return a reporter that was not revoked, with its secret; None = there is none.

        Raises
        ------
        MaterialError
            When its secret was sealed with other key material.
        """
        query = select(REPORTERS).where(REPORTERS.c.id == name, REPORTERS.c.revoked_at.is_(None))
        async with self._engine.connect() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is None:
            return None
        secret = self._material.unseal(row.sealed, context=seal_context(name))
        return Reporter(row.id, row.created_at, None, secret.encode())

    async def revoke(self, name: str, now: datetime) -> bool:
        """Revoke a reporter permanently; False = there is none, or it was revoked before."""
        change = (
            update(REPORTERS)
            .where(REPORTERS.c.id == name, REPORTERS.c.revoked_at.is_(None))
            .values(revoked_at=now, sealed="")
        )
        async with self._engine.begin() as connection:
            done = await connection.execute(change)
        return bool(done.rowcount)


def seal_context(name: str) -> str:
    """Return what a sealed secret is bound to."""
    return f"reporters|{name}"
