"""Several API keys of an organization may have one name."""

from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Replace the unique index, which queries by organization used too."""
    op.drop_index("uq_api_keys_live_name", "api_keys")
    op.create_index("ix_api_keys_organization_id", "api_keys", ["organization_id"])
