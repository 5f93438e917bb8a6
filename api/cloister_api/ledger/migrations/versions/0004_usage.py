"""Reporters, prices, events of usage and their sums."""

import sqlalchemy as sa
from alembic import op

from cloister_api.ledger.tables.core import BIG_ID, UtcTime

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0004"
down_revision = "0003"

SUMS = ("input_tokens", "output_tokens", "cached_input_tokens", "requests", "cost")


def upgrade() -> None:
    """Create the tables."""
    reports()
    prices()
    events()
    sums("usage_rollups", "organization", "bucket", "key_id", "model")
    sums("usage_points", "organization", "bucket", "model")
    op.execute("INSERT INTO sequences (name, value) VALUES ('events_deleted', 0)")


def reports() -> None:
    """Create what is known of those who report."""
    op.create_table(
        "reporters",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("sealed", sa.Text, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("revoked_at", UtcTime, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_reporters"),
    )
    op.create_table(
        "deliveries",
        sa.Column("reporter", sa.String(64), nullable=False),
        sa.Column("nonce", sa.String(200), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("reporter", "nonce", name="pk_deliveries"),
    )
    op.create_index("ix_deliveries_received_at", "deliveries", ["received_at"])
    op.create_table(
        "usage_names",
        sa.Column("id", BIG_ID, nullable=False, autoincrement=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(253), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_usage_names"),
        sa.UniqueConstraint("kind", "name", name="uq_usage_names_kind_name"),
    )


def prices() -> None:
    """Create the price lists."""
    op.create_table(
        "price_versions",
        sa.Column("id", BIG_ID, nullable=False, autoincrement=True),
        sa.Column("effective_from", sa.BigInteger, nullable=False),
        sa.Column("imported_at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_price_versions"),
    )
    op.create_table(
        "prices",
        sa.Column("version", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("service", sa.String(64), nullable=False),
        sa.Column("operation", sa.String(64), nullable=False),
        sa.Column("meter", sa.String(64), nullable=False),
        sa.Column("model", sa.String(253), nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint(
            "version", "service", "operation", "meter", "model", name="pk_prices"
        ),
    )


def events() -> None:
    """Create the events."""
    op.create_table(
        "usage_events",
        sa.Column("id", BIG_ID, nullable=False, autoincrement=True),
        sa.Column("event_key", sa.LargeBinary(16), nullable=False),
        sa.Column("occurred_at", sa.BigInteger, nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sa.Column("reporter", sa.String(64), nullable=False),
        sa.Column("organization", sa.BigInteger, nullable=True),
        sa.Column("key_id", sa.BigInteger, nullable=True),
        sa.Column("key_index", sa.LargeBinary(32), nullable=True),
        sa.Column("operation", sa.BigInteger, nullable=False),
        sa.Column("model", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in SUMS),
        sa.Column("price_version", sa.BigInteger, nullable=True),
        sa.Column("request_id", sa.String(200), nullable=True),
        sa.Column("attributes", sa.Text, nullable=True),
        sa.Column("meters", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_usage_events"),
        sa.UniqueConstraint("event_key", name="uq_usage_events_event_key"),
    )


def sums(table: str, *keys: str) -> None:
    """Create a table of sums."""
    op.create_table(
        table,
        sa.Column("level", sa.Integer, nullable=False, autoincrement=False),
        *(sa.Column(name, sa.BigInteger, nullable=False, autoincrement=False) for name in keys),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in SUMS),
        sa.PrimaryKeyConstraint("level", *keys, name=f"pk_{table}"),
        sqlite_with_rowid=False,
    )
