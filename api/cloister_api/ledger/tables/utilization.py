"""The tables of utilization of containers, and of who collects it."""

from sqlalchemy import BigInteger, Column, Integer, String, Table

from cloister_api.ledger.tables.core import METADATA

__all__ = ["AMOUNTS", "LEASES", "UTILIZATION"]

AMOUNTS = (
    "observed",
    "cpu_used",
    "cpu_given",
    "memory_used",
    "memory_given",
    "gpu_observed",
    "gpu_used",
    "gpu_given",
    "gpu_memory_used",
    "gpu_memory_given",
)
"""Columns that are added up: milliseconds; processor-milliseconds used and given; KiB-milliseconds
used and given; the same of GPUs, in thousandths of a GPU. Each value of a point is a ratio of two
of them."""

UTILIZATION = Table(
    "container_utilization",
    METADATA,
    Column("level", Integer, primary_key=True, autoincrement=False),
    Column("container", BigInteger, primary_key=True, autoincrement=False),
    Column("bucket", BigInteger, primary_key=True, autoincrement=False),
    *(Column(name, BigInteger, nullable=False, server_default="0") for name in AMOUNTS),
    sqlite_with_rowid=False,
)
"""Sums by size of the bucket in seconds, number of the container in ``usage_names``, and the Unix
second that the bucket begins with."""

LEASES = Table(
    "leases",
    METADATA,
    Column("name", String(32), primary_key=True),
    Column("holder", String(36), nullable=False),
    Column("until", BigInteger, nullable=False),
)
"""Which facade does what one of them is to do, and until when, in Unix milliseconds."""
