"""Orders of certificates, and what keeps an authority's rate limits."""

import sqlalchemy as sa
from alembic import op

from cloister_api.ledger.tables.core import UtcTime

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "certificate_orders",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("enclave_uid", sa.String(64), nullable=False),
        sa.Column("enclave", sa.String(512), nullable=False),
        sa.Column("request_digest", sa.String(64), nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("names", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("due_at", UtcTime, nullable=False),
        sa.Column("held_by", sa.String(36), nullable=True),
        sa.Column("held_until", UtcTime, nullable=True),
        sa.Column("order_url", sa.Text, nullable=True),
        sa.Column("certificate", sa.Text, nullable=True),
        sa.Column("not_after", UtcTime, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_certificate_orders"),
        sa.UniqueConstraint(
            "enclave_uid",
            "request_digest",
            name="uq_certificate_orders_enclave_uid_request_digest",
        ),
    )
    op.create_index("ix_certificate_orders_state_due_at", "certificate_orders", ["state", "due_at"])
    op.create_index(
        "ix_certificate_orders_enclave_uid_created_at",
        "certificate_orders",
        ["enclave_uid", "created_at"],
    )
    op.create_table(
        "certificate_submissions",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=True),
        sa.Column("at", UtcTime, nullable=False),
        sa.Column("names", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_certificate_submissions"),
    )
    op.create_index("ix_certificate_submissions_at", "certificate_submissions", ["at"])
    turns = op.create_table(
        "certificate_turns",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_certificate_turns"),
    )
    op.bulk_insert(turns, [{"id": 1, "value": 0}])
