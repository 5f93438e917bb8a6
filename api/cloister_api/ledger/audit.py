"""The audit trail: one row for every attempted write, whatever its result.

Written by the facade's routes and the commands. Rows hold names and identifiers, never values of
keys, variables or secrets.
"""

from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, exists, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.tables import AUDIT

BEGUN = "begun"
"""Result of a write whose end is not recorded: it is in progress, or the facade was killed or the
ledger away before it ended."""
COMMAND_LINE = "command line: "
"""What the actor of a command begins with, before the user of the machine."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One write."""

    at: datetime
    """When, in UTC."""
    request_id: str
    """Identifier of the request, also in the response."""
    organization: str
    """Slug of the organization it was done for."""
    actor: str
    """User who created the key; for a command the user of the machine."""
    key_id: str | None
    """Identifier of the admin key; None for a command."""
    action: str
    """The attempted action, such as ``container.create``."""
    target: str
    """Identifier of what it was done to; its name where it has none yet."""
    result: str
    """HTTP status and code, such as ``201`` or ``409 CONFLICT``; `BEGUN` until it ends."""
    organization_id: str | None = None
    """Identifier of the Organization; None if written by a release before 0.3."""
    session_id: str | None = None
    """Identifier of the session of the dashboard; None if it was none."""


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Which rows of an organization are read, newest first."""

    organization: str
    """Slug of the organization."""
    organization_id: str
    """Identifier of the Organization."""
    present_since: datetime | None
    """When the Organization was created, after which rows without an identifier are of this one;
    None if they are of an unknown one."""
    limit: int
    """Rows at most."""
    actor: str | None = None
    """Who did it; None means anybody."""
    action: str | None = None
    """What was done; None means anything."""
    target: str | None = None
    """Identifier of what it was done to; None means anything."""
    since: datetime | None = None
    """Earliest time, in UTC; None means any."""
    before: int | None = None
    """Number of the row that the page follows; None to start at the newest."""

    @property
    def conditions(self) -> list[ColumnElement[bool]]:
        """What the rows have in common."""
        rows = AUDIT.c
        own = rows.organization_id == self.organization_id
        if self.present_since is not None:
            own |= rows.organization_id.is_(None) & (rows.at >= self.present_since)
        found = [rows.organization == self.organization, own]
        found += [
            column == value
            for column, value in (
                (rows.actor, self.actor),
                (rows.action, self.action),
                (rows.target, self.target),
            )
            if value is not None
        ]
        if self.since is not None:
            found.append(rows.at >= self.since)
        if self.before is not None:
            found.append(rows.id < self.before)
        return found


class AuditTrail:
    """The table of the trail."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def add(self, row: AuditRow) -> int:
        """Write a row, and return its number."""
        async with self._engine.begin() as connection:
            written = insert(AUDIT).values(asdict(row)).returning(AUDIT.c.id)
            return int((await connection.execute(written)).scalar_one())

    async def complete(self, number: int, *, target: str, result: str) -> None:
        """Write what came of an attempt that was recorded when it began."""
        row = update(AUDIT).where(AUDIT.c.id == number)
        async with self._engine.begin() as connection:
            await connection.execute(row.values(target=target, result=result))

    async def contains(self, *, action: str, target: str, result: str) -> bool:
        """Return whether an action on a target had a result at least once.

        Parameters
        ----------
        action
            Such as ``container.create``.
        result
            Such as ``201``.
        """
        query = select(
            exists().where(
                AUDIT.c.target == target, AUDIT.c.action == action, AUDIT.c.result == result
            )
        )
        async with self._engine.connect() as connection:
            return bool((await connection.execute(query)).scalar_one())

    async def last(self, *, action: str, target: str) -> datetime | None:
        """Return when an action on a target was last recorded, in UTC; None if it never was."""
        query = select(func.max(AUDIT.c.at)).where(
            AUDIT.c.target == target, AUDIT.c.action == action
        )
        async with self._engine.connect() as connection:
            found: datetime | None = (await connection.execute(query)).scalar_one()
            return found

    async def page(self, query: AuditQuery) -> list[tuple[int, AuditRow]]:
        """Return rows with their numbers, newest first."""
        chosen = (
            select(AUDIT).where(*query.conditions).order_by(AUDIT.c.id.desc()).limit(query.limit)
        )
        async with self._engine.connect() as connection:
            found = (await connection.execute(chosen)).mappings().all()
        return [
            (row["id"], AuditRow(**{name: row[name] for name in row if name != "id"}))
            for row in found
        ]

    async def of(self, organization: str) -> list[AuditRow]:
        """Return the rows of an organization, oldest first."""
        columns = [column for column in AUDIT.columns if column.name != "id"]
        query = select(*columns).where(AUDIT.c.organization == organization).order_by(AUDIT.c.id)
        async with self._engine.connect() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [AuditRow(**row) for row in rows]
