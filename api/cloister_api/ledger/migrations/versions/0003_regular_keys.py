"""Regular keys, what each has used, counters of changes, the facades that run."""

import sqlalchemy as sa
from alembic import op

from cloister_api.ledger.tables.core import BIG_ID, UtcTime

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the tables."""
    sequences = op.create_table(
        "sequences",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_sequences"),
    )
    op.bulk_insert(sequences, [{"name": "api_keys", "value": 0}, {"name": "usage", "value": 0}])
    op.create_table(
        "api_keys",
        sa.Column("id", BIG_ID, nullable=False, autoincrement=True),
        sa.Column("key_index", sa.LargeBinary(32), nullable=False),
        sa.Column("sealed", sa.Text, nullable=False),
        sa.Column("shown", sa.String(8), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("organization", sa.String(253), nullable=False),
        sa.Column("organization_id", sa.String(64), nullable=False),
        sa.Column("created_by", sa.String(253), nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("expires_at", UtcTime, nullable=True),
        sa.Column("max_tokens", sa.BigInteger, nullable=True),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("deleted_at", UtcTime, nullable=True),
        sa.Column("last_used_at", UtcTime, nullable=True),
        sa.Column("change", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("key_index", name="uq_api_keys_key_index"),
    )
    op.create_index("ix_api_keys_change", "api_keys", ["change"])
    living = sa.text("deleted_at IS NULL")
    op.create_index(
        "uq_api_keys_live_name",
        "api_keys",
        ["organization_id", "name"],
        unique=True,
        sqlite_where=living,
        postgresql_where=living,
    )
    op.create_table(
        "key_totals",
        sa.Column("key_id", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_input_tokens", sa.BigInteger, nullable=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("cost", sa.BigInteger, nullable=False),
        sa.Column("change", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("key_id", name="pk_key_totals"),
    )
    op.create_index("ix_key_totals_change", "key_totals", ["change"])
    op.create_table(
        "replicas",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("seen_at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_replicas"),
    )
