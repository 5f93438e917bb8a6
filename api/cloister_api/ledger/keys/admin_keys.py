"""Admin keys and reporters' secrets in the ledger: create, find, list, revoke."""

import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from sqlalchemy import RowMapping, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from cloister_api.ledger.keys.key_material import generate
from cloister_api.ledger.keys.table import KeyTable, revoke
from cloister_api.ledger.tables import ADMIN_KEYS, KEY_CHANGES
from cloister_api.ledger.usage_tables import REPORTERS


@dataclass(frozen=True, slots=True)
class AdminKey:
    """An admin key without its value."""

    id: str
    """Identifier of the record; not secret."""
    index: bytes = field(repr=False)
    """HMAC of the value."""
    last_four: str
    """Last characters of the value, for people to tell keys apart."""
    name: str
    """Name that its creator gave it."""
    organization: str
    """Slug of the organization that it belongs to."""
    organization_id: str
    """Identifier of that Organization, so that a later one of the same slug does not inherit it."""
    created_by: str
    """User who created it; it is revoked when that user loses the Admin role."""
    created_at: datetime
    """When it was created, in UTC."""
    expires_at: datetime | None
    """When it expires, in UTC; None if never."""
    revoked_at: datetime | None
    """When it was revoked permanently, in UTC; None if it was not."""
    revoked_because: str | None
    """Why it was revoked; None if it was not."""
    last_used_at: datetime | None
    """When it was last used, in UTC, about a minute late; None if never."""

    @classmethod
    def of(cls, row: RowMapping) -> Self:
        """Build the record from a row."""
        names = (column.name for column in ADMIN_KEYS.columns if column.name != "sealed")
        values: dict[str, Any] = {name: row[name] for name in names}
        return cls(index=values.pop("key_index"), **values)


class AdminKeys(KeyTable):
    """The table of admin keys."""

    async def create(
        self,
        *,
        organization: str,
        organization_id: str,
        user: str,
        name: str,
        now: datetime,
        expires_at: datetime | None = None,
    ) -> tuple[AdminKey, str]:
        """Create a key.

        Parameters
        ----------
        user
            User who creates it and whose Admin role it depends on.
        now
            Present time in UTC.
        expires_at
            When it expires; None if never.

        Returns
        -------
        tuple
            The record, and the value, which is shown once and sealed for its creator.
        """
        value, key_id = generate(), str(uuid.uuid4())
        row = {
            "id": key_id,
            "key_index": self._material.index(value),
            "last_four": value[-4:],
            "name": name,
            "organization": organization,
            "organization_id": organization_id,
            "created_by": user,
            "created_at": now,
            "expires_at": expires_at,
        }
        async with self._engine.begin() as connection:
            await count_change(connection)
            await connection.execute(
                insert(ADMIN_KEYS).values(self._sealed(ADMIN_KEYS, row, value))
            )
            found = await connection.execute(select(ADMIN_KEYS).where(ADMIN_KEYS.c.id == key_id))
            return AdminKey.of(found.mappings().one()), value

    async def all(self, organization: str | None = None) -> list[AdminKey]:
        """Return the keys, oldest first.

        Parameters
        ----------
        organization
            Slug; None means all organizations.
        """
        query = select(ADMIN_KEYS).order_by(ADMIN_KEYS.c.created_at, ADMIN_KEYS.c.id)
        if organization is not None:
            query = query.where(ADMIN_KEYS.c.organization == organization)
        return [AdminKey.of(row) for row in await self._rows(query)]

    async def value(self, key_id: str) -> str | None:
        """Return the value of a key, only for its creator; None if there is no such key.

        Raises
        ------
        MaterialError
            When the value was sealed with other key material.
        """
        row = await self._row(select(ADMIN_KEYS).where(ADMIN_KEYS.c.id == key_id))
        return None if row is None else self._value(ADMIN_KEYS, row)

    async def revoke(self, key_id: str, *, because: str, now: datetime) -> bool:
        """Revoke a key permanently.

        Parameters
        ----------
        now
            Present time in UTC.

        Returns
        -------
        bool
            False when there is no such key or it was revoked before.
        """
        async with self._engine.begin() as connection:
            await count_change(connection)
            return await revoke(connection, ADMIN_KEYS, key_id, now, revoked_because=because)

    async def used(self, times: Mapping[str, datetime]) -> None:
        """Record when keys were last used.

        Parameters
        ----------
        times
            Identifier of the key -> time in UTC.
        """
        async with self._engine.begin() as connection:
            for key_id in sorted(times):
                await connection.execute(
                    update(ADMIN_KEYS)
                    .where(ADMIN_KEYS.c.id == key_id)
                    .values(last_used_at=times[key_id])
                )

    async def change_count(self) -> int:
        """Return a number that grows with every change of a key."""
        async with self._engine.connect() as connection:
            found = await connection.execute(select(KEY_CHANGES.c.value))
            return int(found.scalar_one())


async def count_change(connection: AsyncConnection) -> None:
    """Count a change, which others poll; first in the transaction, as it takes the lock."""
    await connection.execute(update(KEY_CHANGES).values(value=KEY_CHANGES.c.value + 1))


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
    """When it was revoked permanently, in UTC; None if it was not."""
    secret: bytes | None = field(default=None, repr=False)
    """What it signs with; None if not read."""


class Reporters(KeyTable):
    """The table of reporters."""

    async def create(self, name: str, now: datetime) -> str:
        """Create a reporter and return its secret, which is shown only once.

        Raises
        ------
        ReporterExistsError
            When the name is or was used.
        """
        secret = secrets.token_urlsafe(SECRET_BYTES)
        row = self._sealed(REPORTERS, {"id": name, "created_at": now}, secret)
        try:
            async with self._engine.begin() as connection:
                await connection.execute(insert(REPORTERS).values(row))
        except IntegrityError as error:
            raise ReporterExistsError(name) from error
        return secret

    async def all(self) -> list[Reporter]:
        """Return all reporters by name, without secrets."""
        columns = (REPORTERS.c.id, REPORTERS.c.created_at, REPORTERS.c.revoked_at)
        rows = await self._rows(select(*columns).order_by(REPORTERS.c.id))
        return [Reporter(**row) for row in rows]

    async def find(self, name: str) -> Reporter | None:
        """Return a reporter that was not revoked, with its secret; None if there is none.

        Raises
        ------
        MaterialError
            When its secret was sealed with other key material.
        """
        query = select(REPORTERS).where(REPORTERS.c.id == name, REPORTERS.c.revoked_at.is_(None))
        row = await self._row(query)
        if row is None:
            return None
        return Reporter(row["id"], row["created_at"], None, self._value(REPORTERS, row).encode())

    async def revoke(self, name: str, now: datetime) -> bool:
        """Revoke a reporter permanently; False if there is none, or it was revoked before."""
        async with self._engine.begin() as connection:
            return await revoke(connection, REPORTERS, name, now, sealed="")
