"""Browser sessions, and the links that begin them."""

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("token_index", sa.LargeBinary(32), nullable=False),
        sa.Column("user", sa.String(253), nullable=False),
        sa.Column("method", sa.String(16), nullable=False),
        sa.Column("agent", sa.String(200), nullable=False),
        sa.Column("authenticated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_because", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        sa.UniqueConstraint("token_index", name="uq_sessions_token_index"),
    )
    op.create_index("ix_sessions_user", "sessions", ["user"])
    op.create_table(
        "session_links",
        sa.Column("token_index", sa.LargeBinary(32), nullable=False),
        sa.Column("user", sa.String(253), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("token_index", name="pk_session_links"),
    )
