"""Utilization of containers, and who collects it."""

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0005"
down_revision = "0004"

AMOUNTS = ("observed", "cpu_used", "cpu_given", "memory_used", "memory_given")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "container_utilization",
        sa.Column("level", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("container", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("bucket", sa.BigInteger, nullable=False, autoincrement=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in AMOUNTS),
        sa.PrimaryKeyConstraint("level", "container", "bucket", name="pk_container_utilization"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("holder", sa.String(36), nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )
    op.execute("INSERT INTO leases (name, holder, until) VALUES ('utilization', '', 0)")
