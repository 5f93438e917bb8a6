"""The tables of usage and of utilization: reporters, prices, events, sums by time."""

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from cloister_api.ledger.tables import BIG_ID, METADATA, UtcTime

SUMS = ("input_tokens", "output_tokens", "cached_input_tokens", "requests", "cost")
"""Columns that are added up; cost in nano-dollars."""

REPORTERS = Table(
    "reporters",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("sealed", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("revoked_at", UtcTime, nullable=True),
)
"""Who may report usage; the secret is sealed, because signatures need its value."""

DELIVERIES = Table(
    "deliveries",
    METADATA,
    Column("reporter", String(64), primary_key=True),
    Column("nonce", String(200), primary_key=True),
    Column("digest", LargeBinary(32), nullable=False),
    Column("received_at", BigInteger, nullable=False),
    Index(None, "received_at"),
)
"""Nonces of reports that were taken, with the digest of their body, for a day."""

NAMES = Table(
    "usage_names",
    METADATA,
    Column("id", BIG_ID, primary_key=True, autoincrement=True),
    Column("kind", String(16), nullable=False),
    Column("name", String(253), nullable=False),
    UniqueConstraint("kind", "name"),
)
"""Numbers of organizations, models and operations, so that events and sums stay small."""

PRICE_VERSIONS = Table(
    "price_versions",
    METADATA,
    Column("id", BIG_ID, primary_key=True, autoincrement=True),
    Column("effective_from", BigInteger, nullable=False),
    Column("imported_at", UtcTime, nullable=False),
)
"""Price lists; each replaces the whole list from its time on, in microseconds."""

PRICES = Table(
    "prices",
    METADATA,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("service", String(64), primary_key=True),
    Column("operation", String(64), primary_key=True),
    Column("meter", String(64), primary_key=True),
    Column("model", String(253), primary_key=True),
    Column("amount", BigInteger, nullable=False),
)
"""Nano-dollars per million of a meter, or per request; an empty model means every model."""

EVENTS = Table(
    "usage_events",
    METADATA,
    Column("id", BIG_ID, primary_key=True, autoincrement=True),
    Column("event_key", LargeBinary(16), nullable=False, unique=True),
    Column("occurred_at", BigInteger, nullable=False),
    Column("received_at", BigInteger, nullable=False),
    Column("reporter", String(64), nullable=False),
    Column("organization", BigInteger, nullable=True),
    Column("key_id", BigInteger, nullable=True),
    Column("key_index", LargeBinary(32), nullable=True),
    Column("operation", BigInteger, nullable=False),
    Column("model", BigInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cached_input_tokens", BigInteger, nullable=False),
    Column("requests", BigInteger, nullable=False),
    Column("cost", BigInteger, nullable=False),
    Column("price_version", BigInteger, nullable=True),
    Column("request_id", String(200), nullable=True),
    Column("attributes", Text, nullable=True),
    Column("meters", Text, nullable=True),
)
"""Events, each once, times in microseconds. Those whose key is unknown have no organization."""

DEAD_LETTERS = Table(
    "usage_dead_letters",
    METADATA,
    Column("id", BIG_ID, primary_key=True, autoincrement=True),
    Column("letter_key", LargeBinary(16), nullable=False, unique=True),
    Column("reporter", String(64), nullable=False, index=True),
    Column("received_at", BigInteger, nullable=False, index=True),
    Column("key_index", LargeBinary(32), nullable=True),
    Column("reason", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("size", Integer, nullable=False),
)
"""Events that could not be counted, each once, without the key that they name. Bounded."""

DEAD_LETTERS_LOST = Table(
    "usage_dead_letters_lost",
    METADATA,
    Column("reporter", String(64), primary_key=True),
    Column("events", BigInteger, nullable=False),
    Column("last_at", BigInteger, nullable=False),
)
"""How many events of a reporter could not be counted and found no room among the dead letters."""


def sums_of(name: str, *keys: Column[int]) -> Table:
    """Build a table of sums; SQLite keeps its rows in the order of the key."""
    columns = [Column(column, BigInteger, nullable=False) for column in SUMS]
    return Table(name, METADATA, *keys, *columns, sqlite_with_rowid=False)


def key_column(name: str) -> Column[int]:
    """Build a column of the key of a table of sums."""
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


def level_column() -> Column[int]:
    """Build the column with the size of the bucket, in seconds."""
    return Column("level", Integer, primary_key=True, autoincrement=False)


ROLLUPS = sums_of(
    "usage_by_key",
    level_column(),
    key_column("organization"),
    key_column("bucket"),
    key_column("key_id"),
    key_column("model"),
)
"""Sums by bucket, key and model; the bucket is the Unix second that it begins with."""

POINTS = sums_of(
    "usage_points",
    level_column(),
    key_column("organization"),
    key_column("bucket"),
    key_column("model"),
)
"""Sums by bucket and model over all keys of an organization, for time series."""


AMOUNTS = (
    "observed",
    "cpu_used",
    "cpu_given",
    "memory_used",
    "memory_given",
    "gpu_observed",
    "gpu_used",
    "gpu_given",
    "gpu_memory_used",
    "gpu_memory_given",
)
"""Columns that are added up: milliseconds; processor-milliseconds used and given; KiB-milliseconds
used and given; the same of GPUs, in thousandths of a GPU. Each value of a point is a ratio of two
of them."""

UTILIZATION = Table(
    "container_utilization",
    METADATA,
    Column("level", Integer, primary_key=True, autoincrement=False),
    Column("container", BigInteger, primary_key=True, autoincrement=False),
    Column("bucket", BigInteger, primary_key=True, autoincrement=False),
    *(Column(name, BigInteger, nullable=False, server_default="0") for name in AMOUNTS),
    sqlite_with_rowid=False,
)
"""Sums by size of the bucket in seconds, number of the container in ``usage_names``, and the Unix
second that the bucket begins with."""

LEASES = Table(
    "leases",
    METADATA,
    Column("name", String(32), primary_key=True),
    Column("holder", String(36), nullable=False),
    Column("until", BigInteger, nullable=False),
)
"""Which facade does what only one of them must do, and until when, in Unix milliseconds."""
