"""The key that the token of an enclave is bound to."""

import sqlalchemy as sa
from alembic import op

from cloister_api.ledger.tables.core import UtcTime

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the table; enclaves that have orders are bound by their first one, when they ask."""
    op.create_table(
        "certificate_keys",
        sa.Column("enclave_uid", sa.String(64), nullable=False),
        sa.Column("key_digest", sa.String(64), nullable=False),
        sa.Column("bound_at", UtcTime(), nullable=False),
        sa.Column("refused_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("enclave_uid", name="pk_certificate_keys"),
    )
