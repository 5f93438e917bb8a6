"""The tables of browser sessions and of the links that begin them."""

from sqlalchemy import Column, Index, LargeBinary, String, Table, Text

from cloister_api.ledger.tables.core import METADATA, UtcTime

__all__ = ["SESSIONS", "SESSION_LINKS"]

SESSIONS = Table(
    "sessions",
    METADATA,
    Column("id", String(36), primary_key=True),
    Column("token_index", LargeBinary(32), nullable=False, unique=True),
    Column("user", String(253), nullable=False),
    Column("method", String(16), nullable=False),
    Column("agent", String(200), nullable=False),
    Column("authenticated_at", UtcTime, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("seen_at", UtcTime, nullable=False),
    Column("ends_at", UtcTime, nullable=False),
    Column("ended_at", UtcTime, nullable=True),
    Column("ended_because", Text, nullable=True),
    Index(None, "user"),
)
"""Sessions, found by the HMAC of the cookie's value; who may do what stands in the Organizations
alone."""

SESSION_LINKS = Table(
    "session_links",
    METADATA,
    Column("token_index", LargeBinary(32), primary_key=True),
    Column("user", String(253), nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("ends_at", UtcTime, nullable=False),
    Column("used_at", UtcTime, nullable=True),
)
"""One-time links that sign a user in."""
