"""Which session of the dashboard a row of the audit trail is of."""

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the column; rows that are there are of no session."""
    op.add_column("audit", sa.Column("session_id", sa.String(36), nullable=True))
