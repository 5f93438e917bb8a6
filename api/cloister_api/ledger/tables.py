"""The tables of the ledger except usage, as SQLAlchemy Core.

Migrations build the same; a test compares.
"""

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
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
    UniqueConstraint,
)
from typing_extensions import override

BIG_ID = BigInteger().with_variant(Integer, "sqlite")
"""Type of numbers that the database gives out; SQLite counts only in its own integer type."""

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class UtcTime(TypeDecorator[datetime]):
    """A time with zone UTC on both sides; databases without zones keep it as it is."""

    impl = DateTime(timezone=True)
    cache_ok = True

    @override
    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC; a time without zone is a programming error."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without zone must not reach the ledger")
        return value.astimezone(UTC)

    @override
    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the zone back."""
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
    Column("organization_id", String(64), nullable=True),
    Column("session_id", String(36), nullable=True),
    Index(None, "organization", "at"),
    Index(None, "organization", "id"),
    Index(None, "target", "action"),
)
"""Audit trail: one row for every write; rows are never changed, and deleted when they expire."""

CERTIFICATE_ORDERS = Table(
    "certificate_orders",
    METADATA,
    Column("id", String(36), primary_key=True),
    Column("enclave_uid", String(64), nullable=False),
    Column("enclave", String(512), nullable=False),
    Column("request_digest", String(64), nullable=False),
    Column("request", Text, nullable=False),
    Column("names", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("message", Text, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("due_at", UtcTime, nullable=False),
    Column("held_by", String(36), nullable=True),
    Column("held_until", UtcTime, nullable=True),
    Column("order_url", Text, nullable=True),
    Column("certificate", Text, nullable=True),
    Column("not_after", UtcTime, nullable=True),
    UniqueConstraint("enclave_uid", "request_digest"),
    Index(None, "state", "due_at"),
    Index(None, "enclave_uid", "created_at"),
)
"""Orders of certificates: what enclaves requested, the state of it, and the certificate."""

CERTIFICATE_SUBMISSIONS = Table(
    "certificate_submissions",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", UtcTime, nullable=False),
    Column("names", Text, nullable=False),
    Column("namespace", String(253), nullable=False, server_default=""),
    Index(None, "at"),
)
"""Every order that was sent to the ACME authority, to keep its rate limits."""

CERTIFICATE_KEYS = Table(
    "certificate_keys",
    METADATA,
    Column("enclave_uid", String(64), primary_key=True),
    Column("key_digest", String(64), nullable=False),
    Column("bound_at", UtcTime, nullable=False),
    Column("refused_at", UtcTime, nullable=True),
)
"""The one key that each enclave may have certified, and when another was last refused."""

CERTIFICATE_TURNS = Table(
    "certificate_turns",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
"""One row, counted up first in the transaction that takes an order: replicas take turns."""
SEQUENCES = Table(
    "sequences",
    METADATA,
    Column("name", String(32), primary_key=True),
    Column("value", BigInteger, nullable=False),
)
"""Counters of changes. A writer counts up first, which makes it wait for the writer before it, so
that rows become visible in the order of their numbers."""

API_KEYS = Table(
    "api_keys",
    METADATA,
    Column("id", BIG_ID, primary_key=True, autoincrement=True),
    Column("key_index", LargeBinary(32), nullable=False, unique=True),
    Column("sealed", Text, nullable=False),
    Column("shown", String(8), nullable=False),
    Column("name", String(128), nullable=False),
    Column("organization", String(253), nullable=False),
    Column("organization_id", String(64), nullable=False),
    Column("created_by", String(253), nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=True),
    Column("max_tokens", BigInteger, nullable=True),
    Column("metadata", Text, nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("deleted_at", UtcTime, nullable=True),
    Column("last_used_at", UtcTime, nullable=True),
    Column("change", BigInteger, nullable=False),
    Column("request", String(64), nullable=True),
    Index(None, "change"),
    Index(None, "request"),
    Index(None, "organization_id"),
)
"""Regular keys. A deleted one keeps its row without its value, so that its usage keeps a name.
`request` is the digest of a create with an Idempotency-Key, by which a retry finds it."""

KEY_TOTALS = Table(
    "key_totals",
    METADATA,
    Column("key_id", BigInteger, primary_key=True, autoincrement=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cached_input_tokens", BigInteger, nullable=False),
    Column("requests", BigInteger, nullable=False),
    Column("cost", BigInteger, nullable=False),
    Column("change", BigInteger, nullable=False),
    Index(None, "change"),
)
"""Usage of each key since it was created; cost in nano-dollars."""

REPLICAS = Table(
    "replicas",
    METADATA,
    Column("id", String(36), primary_key=True),
    Column("seen_at", UtcTime, nullable=False),
)
"""Facades that run on this ledger, by their own heartbeat; rate limits are divided among them."""


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
only."""

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


RUNTIME_ENCLAVES = Table(
    "runtime_enclaves",
    METADATA,
    Column("enclave", String(64), primary_key=True),
    Column("organization", String(64), nullable=False),
    Column("container", String(64), nullable=False),
    Column("name", String(253), nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("metered_until", BigInteger, nullable=False),
    Column("closed", Boolean, nullable=False),
    Index(None, "organization"),
)
"""Enclaves that served: whose they are, what size they have, up to when they are metered in Unix
microseconds, and whether that is the end."""

RUNTIME_SLICES = Table(
    "runtime_slices",
    METADATA,
    Column("id", LargeBinary(16), primary_key=True),
    Column("enclave", String(64), nullable=False),
    Column("begin", BigInteger, nullable=False),
    Column("microseconds", BigInteger, nullable=False),
    Index(None, "enclave", "begin"),
)
"""How long an enclave served in each slice of 5 minutes, by the Unix second that it begins with.
The identifier follows from both, so that writing a slice is idempotent."""
