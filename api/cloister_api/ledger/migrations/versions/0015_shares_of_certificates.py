"""Which organization an order to the ACME authority was sent for."""

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the column; orders that were sent before count for no organization."""
    op.add_column(
        "certificate_submissions",
        sa.Column("namespace", sa.String(253), nullable=False, server_default=""),
    )
