"""How long the audit trail is kept, and what a retry of a create is told by it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.audit import AuditRow, AuditTrail
from cloister_api.ledger.last_backup import ACTION, TARGET, LastBackup
from cloister_api.services.preconditions import RETRIED_WITHIN, CreateRequest, is_repeatable
from cloister_api.usage import retention

NOW = datetime(2026, 11, 22, tzinfo=UTC)
DAY = timedelta(days=1)


def row(days_ago: int, target: str = "t") -> AuditRow:
    """Return the row of an acknowledged create."""
    return AuditRow(NOW - days_ago * DAY, "r", "acme", "ada", "k", "secret.create", target, "201")


async def test_rows_are_deleted_after_their_days(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PAGE", 2)
    trail = AuditTrail(engine)
    for days_ago in (500, 450, 403, 402, 401, 400, 1):
        await trail.add(row(days_ago))
    assert await retention.prune_audit(engine, NOW - 400 * DAY) == 5
    assert [(NOW - each.at).days for each in await trail.of("acme")] == [400, 1]
    assert await retention.prune_audit(engine, NOW - 400 * DAY) == 0


async def test_a_create_without_a_key_is_a_retry_for_a_day_until_it_was_acknowledged(
    engine: AsyncEngine,
) -> None:
    trail = AuditTrail(engine)
    await trail.add(row(0, "acknowledged"))
    without, with_key = (CreateRequest("d", key, "secret.create") for key in (None, "mine"))
    assert await is_repeatable(trail, without, "lost", RETRIED_WITHIN)
    assert not await is_repeatable(trail, without, "acknowledged", RETRIED_WITHIN)
    # Its row may have been deleted since.
    assert not await is_repeatable(trail, without, "lost", 2 * RETRIED_WITHIN)
    assert await is_repeatable(trail, with_key, "acknowledged", 500 * DAY)


async def test_the_last_backup_is_the_newest_one_that_was_recorded(engine: AsyncEngine) -> None:
    trail = AuditTrail(engine)
    last = LastBackup(trail)
    await trail.add(row(0, TARGET))
    await last.read()
    assert last.at is None
    for days_ago in (3, 1, 2):
        await trail.add(replace(row(days_ago, TARGET), action=ACTION))
    await last.read()
    assert last.at == NOW - DAY
