"""Sums by key: none by the minute any more, and some of 8 days for the inside of long windows.

The table gets another name, so that a facade of an older release, which would not add to the new
sums, fails instead: it answers 503 to reports, and their reporters send them again.
"""

from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0007"
down_revision = "0006"

SUMS = ("input_tokens", "output_tokens", "cached_input_tokens", "requests", "cost")
LONG = 8 * 86_400


def upgrade() -> None:
    """Rename the table, delete what is not read any more, and add days up."""
    op.rename_table("usage_rollups", "usage_by_key")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE usage_by_key RENAME CONSTRAINT pk_usage_rollups TO pk_usage_by_key")
    op.execute("DELETE FROM usage_by_key WHERE level = 60")
    op.execute("DELETE FROM usage_points WHERE level = 2000000000")
    place = f"organization, bucket / {LONG} * {LONG}, key_id, model"
    sums = ", ".join(f"CAST(SUM({name}) AS BIGINT)" for name in SUMS)
    op.execute(
        f"INSERT INTO usage_by_key (level, organization, bucket, key_id, model, {', '.join(SUMS)}) "  # noqa: S608 - our own names
        f"SELECT {LONG}, {place}, {sums} FROM usage_by_key WHERE level = 86400 GROUP BY {place}"
    )
