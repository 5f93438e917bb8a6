"""The request that made a key, so that a create which is sent again finds it."""

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column; keys that are there are nobody's repetition."""
    op.add_column("api_keys", sa.Column("request", sa.String(64), nullable=True))
    op.create_index("ix_api_keys_request", "api_keys", ["request"])
