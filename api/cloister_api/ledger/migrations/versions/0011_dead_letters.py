"""Usage events that could not be counted."""

import sqlalchemy as sa
from alembic import op

from cloister_api.ledger.tables.core import BIG_ID

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Create the tables; events that were rejected before are not known."""
    op.create_table(
        "usage_dead_letters",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("letter_key", sa.LargeBinary(16), nullable=False),
        sa.Column("reporter", sa.String(64), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("key_index", sa.LargeBinary(32), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_usage_dead_letters"),
        sa.UniqueConstraint("letter_key", name="uq_usage_dead_letters_letter_key"),
    )
    op.create_index("ix_usage_dead_letters_received_at", "usage_dead_letters", ["received_at"])
    op.create_index("ix_usage_dead_letters_reporter", "usage_dead_letters", ["reporter"])
    op.create_table(
        "usage_dead_letters_lost",
        sa.Column("reporter", sa.String(64), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("reporter", name="pk_usage_dead_letters_lost"),
    )
