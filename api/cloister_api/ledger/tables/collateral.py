"""The table of what the makers of processors published last."""

from sqlalchemy import JSON, Column, LargeBinary, String, Table

from cloister_api.ledger.tables.core import METADATA, UtcTime

__all__ = ["COLLATERAL_ANSWERS"]

COLLATERAL_ANSWERS = Table(
    "collateral_answers",
    METADATA,
    Column("address", String(512), primary_key=True),
    Column("edition", String(101), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("headers", JSON, nullable=False),
    Column("fetched_at", UtcTime, nullable=False),
    Column("valid_until", UtcTime, nullable=False),
)
"""The newest answer at an address of a maker, whichever replica fetched it; editions are compared
as texts."""
