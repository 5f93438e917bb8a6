"""Browser sessions, organizations in the audit trail and of orders, API keys of one name."""

import sqlalchemy as sa
from alembic import op

from cloister_api.ledger.tables import UtcTime

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add tables and columns; rows that are there have neither session nor organization."""
    op.add_column("audit", sa.Column("organization_id", sa.String(64), nullable=True))
    op.add_column("audit", sa.Column("session_id", sa.String(36), nullable=True))
    op.create_index("ix_audit_organization_id", "audit", ["organization", "id"])
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("token_index", sa.LargeBinary(32), nullable=False),
        sa.Column("user", sa.String(253), nullable=False),
        sa.Column("method", sa.String(16), nullable=False),
        sa.Column("agent", sa.String(200), nullable=False),
        sa.Column("authenticated_at", UtcTime, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("seen_at", UtcTime, nullable=False),
        sa.Column("ends_at", UtcTime, nullable=False),
        sa.Column("ended_at", UtcTime, nullable=True),
        sa.Column("ended_because", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        sa.UniqueConstraint("token_index", name="uq_sessions_token_index"),
    )
    op.create_index("ix_sessions_user", "sessions", ["user"])
    op.create_table(
        "session_links",
        sa.Column("token_index", sa.LargeBinary(32), nullable=False),
        sa.Column("user", sa.String(253), nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("ends_at", UtcTime, nullable=False),
        sa.Column("used_at", UtcTime, nullable=True),
        sa.PrimaryKeyConstraint("token_index", name="pk_session_links"),
    )
    op.add_column(
        "certificate_submissions",
        sa.Column("namespace", sa.String(253), nullable=False, server_default=""),
    )
    # The unique index served queries by organization too.
    op.drop_index("uq_api_keys_live_name", "api_keys")
    op.create_index("ix_api_keys_organization_id", "api_keys", ["organization_id"])
