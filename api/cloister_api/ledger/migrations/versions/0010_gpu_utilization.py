"""Utilization of GPUs, beside that of processors and memory."""

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0010"
down_revision = "0009"

AMOUNTS = ("gpu_observed", "gpu_used", "gpu_given", "gpu_memory_used", "gpu_memory_given")


def upgrade() -> None:
    """Add the columns; a facade of the release before, which does not write them, adds 0."""
    for name in AMOUNTS:
        column = sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
        op.add_column("container_utilization", column)
