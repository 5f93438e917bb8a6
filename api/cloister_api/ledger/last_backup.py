"""When the installation was last backed up, as a metric reports it."""

import asyncio
import contextlib
from datetime import datetime
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from cloister_api.ledger.audit import AuditTrail

ACTION: Final = "installation.backup"
"""Action of the row that a backup leaves in the audit trail of its ledger."""
TARGET: Final = "installation"
READ_SECONDS: Final = 60.0
"""Seconds between two reads: one row of an index each."""


class LastBackup:
    """Follows the backups that were recorded in the ledger; read by the metrics' thread."""

    def __init__(self, audit: AuditTrail) -> None:
        self._audit = audit
        self.at: datetime | None = None
        """When the last one was complete, in UTC; None if none is known."""

    async def run(self) -> None:
        """Read the ledger periodically until cancelled."""
        while True:
            # What else reads the ledger reports that it is away; this value only ages.
            with contextlib.suppress(SQLAlchemyError):
                await self.read()
            await asyncio.sleep(READ_SECONDS)

    async def read(self) -> None:
        """Read the ledger.

        Raises
        ------
        SQLAlchemyError
            When it does not respond.
        """
        self.at = await self._audit.last(action=ACTION, target=TARGET)
