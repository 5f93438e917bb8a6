"""Settings of the ledger: where its database and its key material are."""

from pathlib import Path
from typing import Self

from pydantic import model_validator

from cloister_clients.settings import SettingsSection

__all__ = ["LedgerSettings"]


class LedgerSettings(SettingsSection):
    """Where the ledger is."""

    path: Path | None = None
    """SQLite file; one machine, any number of processes. Unset = PostgreSQL."""
    url_file: Path | None = None
    """File with the address of a PostgreSQL database, which holds a password: one line such as
    postgresql://user:password@host/database. Unset = SQLite."""
    key_material: Path
    """File with the two secret keys, mode 0600; `cloister admin-key init` creates it."""

    @model_validator(mode="after")
    def one_place(self) -> Self:
        """Refuse a ledger in two places, or in none.

        Raises
        ------
        ValueError
            When path and urlFile are both set or both unset.
        """
        if (self.path is None) == (self.url_file is None):
            raise ValueError("name either path (SQLite) or urlFile (PostgreSQL)")
        return self
