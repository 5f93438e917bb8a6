"""Values of cookies and links, and which of them cost the ledger a query."""

import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.ledger.keys.sessions import MOST, SessionLinks, SessionMethod, SessionTable

NOW = datetime(2026, 11, 28, tzinfo=UTC)
HOUR = timedelta(hours=1)


async def test_values_that_were_made_up_cost_no_query(
    engine: AsyncEngine, material: KeyMaterial
) -> None:
    table, links = SessionTable(engine, material), SessionLinks(engine, material)
    session, value = await table.create(
        "ada", method=SessionMethod.ONCE, agent="", now=NOW, life=HOUR, authenticated_at=NOW
    )
    token = await links.create("ada", now=NOW, life=HOUR)
    statements: list[str] = []

    @event.listens_for(engine.sync_engine, "before_cursor_execute")
    def note(_c: object, _k: object, statement: str, *_: Any) -> None:
        statements.append(statement)

    changed = value[:-2] + ("AE" if value[-2] != "A" else "BE")
    for made_up in ("", "x", "A" * 43, changed, *(secrets.token_urlsafe(32) for _ in range(100))):
        assert await table.find(made_up) is None
        assert await links.user(made_up, NOW) is None
        assert await links.use(made_up, NOW) is None
    assert statements == []
    found = await table.find(value)
    assert found is not None
    assert found.id == session.id
    assert await table.find(token) is None, "a link's token is no cookie"
    assert await links.use(token, NOW) == "ada"
    assert len(value) == len(token) == 43
    assert statements


async def test_of_too_many_sessions_the_ended_and_then_the_oldest_go(
    engine: AsyncEngine, material: KeyMaterial
) -> None:
    table = SessionTable(engine, material)

    async def begin(user: str, second: int) -> str:
        now = NOW + timedelta(seconds=second)
        session, _ = await table.create(
            user, method=SessionMethod.ONCE, agent="", now=now, life=HOUR, authenticated_at=now
        )
        return session.id

    other = await begin("bob", 0)
    made = [await begin("ada", number) for number in range(MOST)]
    assert [each.id for each in await table.of("ada")] == made
    await table.end(made[-1], because="signed out", now=NOW)
    made.append(await begin("ada", MOST))
    made.append(await begin("ada", MOST + 1))
    kept = [*made[1 : MOST - 1], *made[MOST:]]
    assert [each.id for each in await table.of("ada")] == kept
    assert [each.id for each in await table.of("bob")] == [other]
