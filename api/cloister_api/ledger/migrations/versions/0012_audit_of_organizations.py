"""Which Organization a row of the audit trail is about, and its order for readers."""

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the column; rows that are there have the slug alone."""
    op.add_column("audit", sa.Column("organization_id", sa.String(64), nullable=True))
    op.create_index("ix_audit_organization_id", "audit", ["organization", "id"])
