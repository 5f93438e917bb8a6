"""The tables of the ledger, as SQLAlchemy Core; migrations build the same (a test compares)."""

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Dialect,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)
from typing_extensions import override

__all__ = ["ADMIN_KEYS", "AUDIT", "KEY_CHANGES", "METADATA", "UtcTime"]

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class UtcTime(TypeDecorator[datetime]):
    """A time with zone UTC on both sides; databases without zones keep it as it stands."""

    impl = DateTime(timezone=True)
    cache_ok = True

    @override
    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC; a time without zone is a mistake of ours."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without zone must not reach the ledger")
        return value.astimezone(UTC)

    @override
    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give the zone back."""
        if value is None or value.tzinfo is not None:
            return value
        return value.replace(tzinfo=UTC)


ADMIN_KEYS = Table(
    "admin_keys",
    METADATA,
    Column("id", String(36), primary_key=True),
    Column("key_index", LargeBinary(32), nullable=False, unique=True),
    Column("sealed", Text, nullable=False),
    Column("last_four", String(4), nullable=False),
    Column("name", String(253), nullable=False),
    Column("organization", String(253), nullable=False),
    Column("organization_id", String(64), nullable=False),
    Column("created_by", String(253), nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=True),
    Column("revoked_at", UtcTime, nullable=True),
    Column("revoked_because", Text, nullable=True),
    Column("last_used_at", UtcTime, nullable=True),
    Index(None, "organization"),
)
"""Admin keys: found by the HMAC of the key, readable again only through `sealed`."""

KEY_CHANGES = Table(
    "key_changes",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
"""One row, counted up by every change of a key, so that other processes notice it cheaply."""

AUDIT = Table(
    "audit",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", UtcTime, nullable=False),
    Column("request_id", String(128), nullable=False),
    Column("organization", String(253), nullable=False),
    Column("actor", String(253), nullable=False),
    Column("key_id", String(36), nullable=True),
    Column("action", String(64), nullable=False),
    Column("target", String(253), nullable=False),
    Column("result", String(64), nullable=False),
    Index(None, "organization", "at"),
    Index(None, "target", "action"),
)
"""Audit trail: one row for every write; it is only ever added to."""
