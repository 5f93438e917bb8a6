"""Brings a ledger from the form that an earlier release wrote to the newest, with Alembic."""

import alembic.command
import alembic.config
from alembic.util import CommandError
from sqlalchemy.engine import Connection

from cloister_api.ledger.database import MIGRATIONS

__all__ = ["NewerLedgerError", "upgrade"]


class NewerLedgerError(Exception):
    """A newer release has written the ledger; the message names the form."""


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Apply the migrations that a ledger has not seen.

    Parameters
    ----------
    connection
        Connection to the ledger, in a transaction.
    revision
        Form to stop at.

    Raises
    ------
    NewerLedgerError
        When the ledger's form is none that this release knows.
    """
    config = alembic.config.Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        alembic.command.upgrade(config, revision)
    except CommandError as error:
        raise NewerLedgerError(str(error)) from error
