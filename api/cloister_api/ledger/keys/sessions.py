"""Browser sessions and one-time links in the ledger.

A session is found by the HMAC of the value in its cookie, a link by that of its token; neither
value is stored. A row is read at each request, so that what ends a session ends it in all replicas.
Each value ends with a tag by the key material: one that was made up costs the ledger no query.
"""

import base64
import hmac
import re
import secrets
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from sqlalchemy import ColumnElement, RowMapping, delete, insert, select, update

from cloister_api.ledger.keys.key_material import KeySealer
from cloister_api.ledger.keys.table import KeyTable
from cloister_api.ledger.tables import SESSION_LINKS, SESSIONS

RANDOM_BYTES = 24
TAG_BYTES = 8
TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
"""Values of cookies and tokens of links: random bytes and their tag, base64url."""
RANDOM_CHARACTERS = 32
"""Characters of a token that are random; the tag follows."""
KEPT = timedelta(days=30)
"""How long ended sessions and used links are kept."""
MOST = 100
"""Most sessions of a user that are kept."""


class SessionMethod(StrEnum):
    """How somebody signed in."""

    OIDC = "oidc"
    """By the OpenID provider."""
    ONCE = "once"
    """By a one-time link."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session."""

    id: str
    """Identifier, which is not a secret."""
    user: str
    """User who signed in, as Organizations name their members."""
    method: SessionMethod
    """How."""
    agent: str
    """What the browser says of itself."""
    authenticated_at: datetime
    """When the user last proved who they are, in UTC."""
    created_at: datetime
    """When it began, in UTC."""
    seen_at: datetime
    """When it was last used, in UTC; a minute late at most."""
    ends_at: datetime
    """When it ends at the latest, in UTC."""
    ended_at: datetime | None
    """When it was ended, in UTC; None if it was not."""
    ended_because: str | None
    """Why, for people."""

    @classmethod
    def of(cls, row: RowMapping) -> Self:
        """Build it of a row."""
        values = {name: row[name] for name in cls.__dataclass_fields__}
        return cls(**{**values, "method": SessionMethod(row["method"])})


class SessionTable(KeyTable):
    """The sessions."""

    async def create(
        self,
        user: str,
        *,
        method: SessionMethod,
        agent: str,
        now: datetime,
        life: timedelta,
        authenticated_at: datetime,
    ) -> tuple[SessionRow, str]:
        """Begin a session, and forget those that ended long ago or are too many.

        Of a user's, those that have ended go first, then the oldest, which end by it.

        Parameters
        ----------
        agent
            What the browser says of itself; cut to 200 characters.
        now
            Present time in UTC.
        life
            How long it lasts at most.
        authenticated_at
            When the user last proved who they are, in UTC.

        Returns
        -------
        tuple
            The session, and the value of its cookie, which nothing else shows.
        """
        value, session_id = new_token(self._material), str(uuid.uuid4())
        row = {
            "id": session_id,
            "token_index": self._material.index(value),
            "user": user,
            "method": method.value,
            "agent": agent[:200],
            "authenticated_at": authenticated_at,
            "created_at": now,
            "seen_at": now,
            "ends_at": now + life,
        }
        own = SESSIONS.c.user == user
        order = (SESSIONS.c.ended_at.is_not(None), SESSIONS.c.created_at.desc())
        # One less than the most, since the new session is inserted below.
        newest = select(SESSIONS.c.id).where(own).order_by(*order).limit(MOST - 1)
        async with self._engine.begin() as connection:
            await connection.execute(delete(SESSIONS).where(SESSIONS.c.ends_at < now - KEPT))
            await connection.execute(delete(SESSIONS).where(own, SESSIONS.c.id.not_in(newest)))
            await connection.execute(insert(SESSIONS).values(row))
            found = await connection.execute(select(SESSIONS).where(SESSIONS.c.id == session_id))
            return SessionRow.of(found.mappings().one()), value

    async def find(self, value: str) -> SessionRow | None:
        """Return the session of a cookie's value, ended ones included; None if there is none."""
        if not is_issued(value, self._material):
            return None
        query = select(SESSIONS).where(SESSIONS.c.token_index == self._material.index(value))
        row = await self._row(query)
        return None if row is None else SessionRow.of(row)

    async def seen(self, session_id: str, now: datetime) -> None:
        """Record that a session was used."""
        async with self._engine.begin() as connection:
            await connection.execute(
                update(SESSIONS).where(SESSIONS.c.id == session_id).values(seen_at=now)
            )

    async def end(self, session_id: str, *, because: str, now: datetime) -> SessionRow | None:
        """End a session; return it, or None when there is none or it ended before."""
        known = SESSIONS.c.id == session_id
        change = (
            update(SESSIONS)
            .where(known, SESSIONS.c.ended_at.is_(None))
            .values(ended_at=now, ended_because=because)
        )
        async with self._engine.begin() as connection:
            if not (await connection.execute(change)).rowcount:
                return None
            found = await connection.execute(select(SESSIONS).where(known))
            return SessionRow.of(found.mappings().one())

    async def of(self, user: str) -> list[SessionRow]:
        """Return the sessions of a user that are kept, oldest first."""
        return await self._read(SESSIONS.c.user == user)

    async def some(self, identifiers: Iterable[str]) -> list[SessionRow]:
        """Return those sessions of some identifiers that are kept, oldest first."""
        return await self._read(SESSIONS.c.id.in_(identifiers))

    async def all(self) -> list[SessionRow]:
        """Return all sessions that are kept, oldest first."""
        return await self._read()

    async def _read(self, *conditions: ColumnElement[bool]) -> list[SessionRow]:
        query = select(SESSIONS).where(*conditions).order_by(SESSIONS.c.created_at, SESSIONS.c.id)
        return [SessionRow.of(row) for row in await self._rows(query)]


class SessionLinks(KeyTable):
    """The one-time links."""

    async def create(self, user: str, *, now: datetime, life: timedelta) -> str:
        """Return the token of a new link, and forget those that ended long ago."""
        token = new_token(self._material)
        row = {
            "token_index": self._material.index(token),
            "user": user,
            "created_at": now,
            "ends_at": now + life,
        }
        async with self._engine.begin() as connection:
            old = SESSION_LINKS.c.ends_at < now - KEPT
            await connection.execute(delete(SESSION_LINKS).where(old))
            await connection.execute(insert(SESSION_LINKS).values(row))
        return token

    async def user(self, token: str, now: datetime) -> str | None:
        """Return whom a link signs in; None if it is unknown, was used, or is too old."""
        if not is_issued(token, self._material):
            return None
        query = select(SESSION_LINKS.c.user).where(*self._valid(token, now))
        row = await self._row(query)
        return None if row is None else str(row["user"])

    async def use(self, token: str, now: datetime) -> str | None:
        """Use a link up, and return whom it signs in; None as for `user`."""
        # Guesses must not take the ledger's lock for writing.
        if await self.user(token, now) is None:
            return None
        change = update(SESSION_LINKS).where(*self._valid(token, now)).values(used_at=now)
        known = SESSION_LINKS.c.token_index == self._material.index(token)
        async with self._engine.begin() as connection:
            # One statement decides, so that of two requests one is the first.
            if not (await connection.execute(change)).rowcount:
                return None
            found = await connection.execute(select(SESSION_LINKS.c.user).where(known))
            return str(found.scalar_one())

    async def end(self, user: str, now: datetime) -> int:
        """Use up the links of a user that nobody has used, and return how many there were."""
        links = SESSION_LINKS.c
        unused = (links.user == user, links.used_at.is_(None), links.ends_at > now)
        async with self._engine.begin() as connection:
            done = await connection.execute(
                update(SESSION_LINKS).where(*unused).values(used_at=now)
            )
            return int(done.rowcount)

    def _valid(self, token: str, now: datetime) -> tuple[ColumnElement[bool], ...]:
        links = SESSION_LINKS.c
        return (
            links.token_index == self._material.index(token),
            links.used_at.is_(None),
            links.ends_at > now,
        )


def new_token(material: KeySealer) -> str:
    """Return a new value of a cookie or a link."""
    random = secrets.token_urlsafe(RANDOM_BYTES)
    return random + tag_of(random, material)


def is_issued(token: str, material: KeySealer) -> bool:
    """Return whether a value was issued with the key material."""
    if not TOKEN.fullmatch(token):
        return False
    tag = tag_of(token[:RANDOM_CHARACTERS], material)
    return hmac.compare_digest(token[RANDOM_CHARACTERS:], tag)


def tag_of(random: str, material: KeySealer) -> str:
    """Return the tag of random characters. No index is of a text with a blank."""
    digest = material.index(f"tag of {random}")[:TAG_BYTES]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
