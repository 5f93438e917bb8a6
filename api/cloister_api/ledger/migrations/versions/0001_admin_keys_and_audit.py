"""Admin keys, the counter of their changes, the audit trail."""

import sqlalchemy as sa
from alembic import op

from cloister_api.ledger.tables.core import UtcTime

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the first tables."""
    op.create_table(
        "admin_keys",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("key_index", sa.LargeBinary(32), nullable=False),
        sa.Column("sealed", sa.Text, nullable=False),
        sa.Column("last_four", sa.String(4), nullable=False),
        sa.Column("name", sa.String(253), nullable=False),
        sa.Column("organization", sa.String(253), nullable=False),
        sa.Column("organization_id", sa.String(64), nullable=False),
        sa.Column("created_by", sa.String(253), nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("expires_at", UtcTime, nullable=True),
        sa.Column("revoked_at", UtcTime, nullable=True),
        sa.Column("revoked_because", sa.Text, nullable=True),
        sa.Column("last_used_at", UtcTime, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_admin_keys"),
        sa.UniqueConstraint("key_index", name="uq_admin_keys_key_index"),
    )
    op.create_index("ix_admin_keys_organization", "admin_keys", ["organization"])
    changes = op.create_table(
        "key_changes",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_key_changes"),
    )
    op.bulk_insert(changes, [{"id": 1, "value": 0}])
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=True),
        sa.Column("at", UtcTime, nullable=False),
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.Column("organization", sa.String(253), nullable=False),
        sa.Column("actor", sa.String(253), nullable=False),
        sa.Column("key_id", sa.String(36), nullable=True),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("target", sa.String(253), nullable=False),
        sa.Column("result", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_organization_at", "audit", ["organization", "at"])
    op.create_index("ix_audit_target_action", "audit", ["target", "action"])
