"""Run time of containers."""

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "runtime_enclaves",
        sa.Column("enclave", sa.String(64), nullable=False),
        sa.Column("organization", sa.String(64), nullable=False),
        sa.Column("container", sa.String(64), nullable=False),
        sa.Column("name", sa.String(253), nullable=False),
        sa.Column("cpus", sa.Integer, nullable=False),
        sa.Column("memory_mb", sa.Integer, nullable=False),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("metered_until", sa.BigInteger, nullable=False),
        sa.Column("closed", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("enclave", name="pk_runtime_enclaves"),
    )
    op.create_index("ix_runtime_enclaves_organization", "runtime_enclaves", ["organization"])
    op.create_table(
        "runtime_slices",
        sa.Column("id", sa.LargeBinary(16), nullable=False),
        sa.Column("enclave", sa.String(64), nullable=False),
        sa.Column("begin", sa.BigInteger, nullable=False),
        sa.Column("microseconds", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_runtime_slices"),
    )
    op.create_index("ix_runtime_slices_enclave_begin", "runtime_slices", ["enclave", "begin"])
    op.execute("INSERT INTO leases (name, holder, until) VALUES ('runtime', '', 0)")
