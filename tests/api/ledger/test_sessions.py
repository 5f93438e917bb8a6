"""Values of cookies and links, and which of them cost the ledger a query."""

import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.ledger.keys.sessions import SessionLinks, SessionMethod, SessionTable

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
