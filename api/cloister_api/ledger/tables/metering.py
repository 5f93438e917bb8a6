"""The tables of run time. Token usage has nothing to do with them."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, String, Table

from cloister_api.ledger.tables.core import METADATA

__all__ = ["RUNTIME_ENCLAVES", "RUNTIME_SLICES"]

RUNTIME_ENCLAVES = Table(
    "runtime_enclaves",
    METADATA,
    Column("enclave", String(64), primary_key=True),
    Column("organization", String(64), nullable=False),
    Column("container", String(64), nullable=False),
    Column("name", String(253), nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("metered_until", BigInteger, nullable=False),
    Column("closed", Boolean, nullable=False),
    Index(None, "organization"),
)
"""Enclaves that served: whose they are, what size they have, up to when they are metered in Unix
microseconds, and whether that is the end."""

RUNTIME_SLICES = Table(
    "runtime_slices",
    METADATA,
    Column("id", LargeBinary(16), primary_key=True),
    Column("enclave", String(64), nullable=False),
    Column("begin", BigInteger, nullable=False),
    Column("microseconds", BigInteger, nullable=False),
    Index(None, "enclave", "begin"),
)
"""How long an enclave served in each slice of 5 minutes, by the Unix second that it begins with.
The identifier follows from both, so that writing a slice is idempotent."""
