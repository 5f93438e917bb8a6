"""Brings a ledger from the form that an earlier release wrote to the newest, with Alembic."""

import alembic.command
import alembic.config
from alembic.util import CommandError
from sqlalchemy.engine import Connection

from cloister_api.ledger.database import MIGRATIONS, LedgerError

__all__ = ["upgrade"]


def upgrade(connection: Connection, name: str, revision: str = "head") -> None:
    """Apply the migrations that a ledger has not seen.

    Parameters
    ----------
    connection
        Connection to the ledger, in a transaction.
    name
        How messages name the ledger.
    revision
        Form to stop at.

    Raises
    ------
    LedgerError
        When a newer release has written the ledger.
    """
    config = alembic.config.Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        alembic.command.upgrade(config, revision)
    except CommandError as error:
        raise LedgerError(
            f"{name} was written by a newer release ({error}); upgrade this one"
        ) from error
