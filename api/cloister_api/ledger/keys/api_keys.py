"""Regular API keys in the ledger: create, list, change, delete.

Written by `cloister_api.services.api_keys` and ``cloister key``; polled by
`cloister_api.auth.api_keys`, which checks keys from memory. Usage of keys is in a table of its own,
so that usage and changes of keys do not wait for each other.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from sqlalchemy import ColumnElement, RowMapping, Select, and_, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from cloister_api.ledger.keys.key_material import MASK_SHOWN, REGULAR_PREFIX, generate
from cloister_api.ledger.keys.table import KeyTable
from cloister_api.ledger.leases import advance
from cloister_api.ledger.tables import API_KEYS, KEY_TOTALS

INTERNAL = frozenset({"sealed", "change", "request"})
"""Columns that are not part of a record."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A regular key without its value."""

    id: int
    """Number of the record; not secret."""
    index: bytes = field(repr=False)
    """HMAC of the value."""
    shown: str
    """First characters of the value, which the other members may see."""
    name: str
    """Name that usage is reported under."""
    organization: str
    """Slug of the organization."""
    organization_id: str
    """Identifier of that Organization."""
    created_by: str
    """User who created it; only they may read its value."""
    created_at: datetime
    """When it was created, in UTC."""
    expires_at: datetime | None
    """When it expires, in UTC; None if never."""
    max_tokens: int | None
    """How many tokens it may use in all; None means no cap."""
    metadata: dict[str, Any]
    """Metadata that its creator stored with it."""
    disabled: bool
    """Whether an administrator switched it off."""
    deleted_at: datetime | None
    """When it was deleted, in UTC; None if it was not."""
    last_used_at: datetime | None
    """When a check last succeeded, in UTC, about a minute late; None if never."""
    input_tokens: int
    """Input tokens used."""
    output_tokens: int
    """Output tokens used."""
    requests: int
    """Requests counted."""

    @classmethod
    def of(cls, row: RowMapping | Mapping[str, Any]) -> Self:
        """Build the record from a row of `records`."""
        values: dict[str, Any] = dict(row)
        values["metadata"] = json.loads(values["metadata"])
        return cls(index=values.pop("key_index"), **values)


def records() -> Select[Any]:
    """Return the query of all keys with what they have used."""
    columns = [column for column in API_KEYS.columns if column.name not in INTERNAL]
    sums = [
        func.coalesce(KEY_TOTALS.c[name], 0).label(name)
        for name in ("input_tokens", "output_tokens", "requests")
    ]
    joined = API_KEYS.outerjoin(KEY_TOTALS, KEY_TOTALS.c.key_id == API_KEYS.c.id)
    return select(*columns, *sums).select_from(joined)


class ApiKeys(KeyTable):
    """The table of regular keys."""

    async def create(
        self,
        *,
        organization: str,
        organization_id: str,
        user: str,
        name: str,
        now: datetime,
        expires_at: datetime | None = None,
        max_tokens: int | None = None,
        metadata: str = "{}",
        request: str | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key, or return the one that an earlier attempt of the request made.

        Parameters
        ----------
        name
            Name; several keys of the organization may have it.
        now
            Present time in UTC.
        expires_at
            When it expires; None if never.
        max_tokens
            Cap; None means no cap.
        metadata
            JSON text of an object.
        request
            Digest of the request, by which a retry finds the key; None if not retryable.

        Raises
        ------
        MaterialError
            When the value of an earlier attempt was sealed with other key material.
        """
        value = generate(REGULAR_PREFIX)
        index = self._material.index(value)
        row = {
            "key_index": index,
            "shown": value[:MASK_SHOWN],
            "name": name,
            "organization": organization,
            "organization_id": organization_id,
            "created_by": user,
            "created_at": now,
            "expires_at": expires_at,
            "max_tokens": max_tokens,
            "metadata": metadata,
            "disabled": False,
            "request": request,
        }
        async with self._engine.begin() as connection:
            # Attempts of one request wait for each other here, so that only the first one inserts.
            change = await advance(connection, "api_keys")
            if request is not None:
                earlier = await self._made_by(connection, request, organization_id)
                if earlier is not None:
                    return earlier
            await connection.execute(
                insert(API_KEYS).values(self._sealed(API_KEYS, {**row, "change": change}, value))
            )
            made = await connection.execute(records().where(API_KEYS.c.key_index == index))
            return ApiKey.of(made.mappings().one()), value

    async def made_by(self, request: str, organization_id: str) -> tuple[ApiKey, str] | None:
        """Return the newest live key that a request made, and its value; None if there is none.

        Raises
        ------
        MaterialError
            When its value was sealed with other key material.
        """
        async with self._engine.connect() as connection:
            return await self._made_by(connection, request, organization_id)

    async def _made_by(
        self, connection: AsyncConnection, request: str, organization_id: str
    ) -> tuple[ApiKey, str] | None:
        query = (
            records()
            .add_columns(API_KEYS.c.sealed)
            .where(
                API_KEYS.c.request == request,
                API_KEYS.c.organization_id == organization_id,
                API_KEYS.c.deleted_at.is_(None),
            )
            .order_by(API_KEYS.c.id.desc())
            .limit(1)
        )
        row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            return None
        key = ApiKey.of({name: value for name, value in row.items() if name != "sealed"})
        return key, self._value(API_KEYS, row)

    async def count(self, organization_id: str) -> int:
        """Return how many live keys an organization has."""
        query = (
            select(func.count())
            .select_from(API_KEYS)
            .where(API_KEYS.c.organization_id == organization_id, API_KEYS.c.deleted_at.is_(None))
        )
        async with self._engine.connect() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def of_organization(
        self, organization_id: str, *, after: int = 0, limit: int | None = None
    ) -> list[ApiKey]:
        """Return the live keys of an organization, oldest first.

        Parameters
        ----------
        limit
            Keys at most; None means all.
        """
        query = (
            records()
            .where(
                API_KEYS.c.organization_id == organization_id,
                API_KEYS.c.deleted_at.is_(None),
                API_KEYS.c.id > after,
            )
            .order_by(API_KEYS.c.id)
            .limit(limit)
        )
        return [ApiKey.of(row) for row in await self._rows(query)]

    async def live(self, organization: str | None = None) -> list[ApiKey]:
        """Return live keys, oldest first.

        Parameters
        ----------
        organization
            Slug; None means all organizations.
        """
        query = records().where(API_KEYS.c.deleted_at.is_(None)).order_by(API_KEYS.c.id)
        if organization is not None:
            query = query.where(API_KEYS.c.organization == organization)
        return [ApiKey.of(row) for row in await self._rows(query)]

    async def find(self, index: bytes, organization_id: str) -> ApiKey | None:
        """Return the live key of an organization that has an index; None if there is none."""
        return await self._one(API_KEYS.c.key_index == index, organization_id)

    async def numbered(self, number: int, organization_id: str) -> ApiKey | None:
        """Return the live key of an organization that has a number; None if there is none."""
        return await self._one(API_KEYS.c.id == number, organization_id)

    async def _one(self, which: ColumnElement[bool], organization_id: str) -> ApiKey | None:
        query = records().where(
            which, API_KEYS.c.organization_id == organization_id, API_KEYS.c.deleted_at.is_(None)
        )
        row = await self._row(query)
        return None if row is None else ApiKey.of(row)

    async def values(
        self, organization_id: str, user: str, numbers: Collection[int] | None = None
    ) -> dict[int, str]:
        """Return the values of a user's own live keys by number, only for that user.

        Parameters
        ----------
        numbers
            Numbers of keys, from the least to the greatest of which values are read; None means
            all.

        Raises
        ------
        MaterialError
            When a value was sealed with other key material.
        """
        query = select(
            API_KEYS.c.id, API_KEYS.c.sealed, API_KEYS.c.organization, API_KEYS.c.key_index
        ).where(
            API_KEYS.c.organization_id == organization_id,
            API_KEYS.c.created_by == user,
            API_KEYS.c.deleted_at.is_(None),
        )
        if numbers is not None:
            least, greatest = min(numbers, default=0), max(numbers, default=0)
            # A range keeps the number of bound parameters constant.
            query = query.where(API_KEYS.c.id.between(least, greatest))
        return {row["id"]: self._value(API_KEYS, row) for row in await self._rows(query)}

    async def change(self, key_id: int, **values: Any) -> bool:
        """Write columns of a live key.

        Returns
        -------
        bool
            False when there is no such live key.
        """
        where = and_(API_KEYS.c.id == key_id, API_KEYS.c.deleted_at.is_(None))
        async with self._engine.begin() as connection:
            number = await advance(connection, "api_keys")
            done = await connection.execute(
                update(API_KEYS).where(where).values(change=number, **values)
            )
        return bool(done.rowcount)

    async def delete(self, key_id: int, *, now: datetime) -> bool:
        """Delete a key: its value is erased, its usage keeps its name.

        Returns
        -------
        bool
            False when there is no such live key.
        """
        return await self.change(key_id, deleted_at=now, sealed="", metadata="{}", request=None)

    async def used(self, times: Mapping[int, datetime]) -> None:
        """Record when keys were last used.

        Parameters
        ----------
        times
            Number of the key -> time in UTC.
        """
        async with self._engine.begin() as connection:
            # The counter is locked first, as every writer of keys does: no two wait for each other.
            await advance(connection, "api_keys")
            await note_uses(connection, times)


async def note_uses(connection: AsyncConnection, times: Mapping[int, datetime]) -> None:
    """Write when keys were last used, never an earlier time over a later one."""
    for key_id in sorted(times):
        at = times[key_id]
        later = API_KEYS.c.last_used_at.is_(None) | (API_KEYS.c.last_used_at < at)
        await connection.execute(
            update(API_KEYS).where(API_KEYS.c.id == key_id, later).values(last_used_at=at)
        )
