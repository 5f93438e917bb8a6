"""Events that cannot be counted are kept with their reason, once, without keys, within bounds."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.database import Place, open_to_read
from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.ledger.usage_tables import DEAD_LETTERS, EVENTS
from cloister_api.usage import retention
from cloister_api.usage.retention import DeadLetter, check, describe, kept, prune
from tests.support.builders.usage import delivery, event, key_in, written

NOW = datetime(2026, 11, 22, 4, 30, 2, tzinfo=UTC)


def read(place: Place) -> tuple[list[DeadLetter], list[str]]:
    """Return the dead letters and what a check says of them; sums must be right."""
    engine = open_to_read(place)
    try:
        assert check(engine, NOW) == []
        with engine.connect() as connection:
            return list(kept(connection)), describe(connection)
    finally:
        engine.dispose()


@pytest.mark.spec("26.7")
async def test_what_cannot_be_counted_is_kept_beside_what_counts(
    engine: AsyncEngine, place: Place, material: KeyMaterial
) -> None:
    key, value = await key_in(engine, material, "ci", NOW)
    wrong = event("e1", NOW, api_key=value, meters=5, attributes={"note": f"by {value}"})
    strange = event("e3", NOW, meters=[{"name": "a\x00", "quantity": 1}] * 2)
    sent = delivery("d1", [wrong, event("e2", NOW, api_key=value), strange], NOW)
    other = delivery("d2", [wrong], NOW + timedelta(seconds=1))
    outcomes = written(place, material, sent, sent, other)
    assert [each.accepted for each in outcomes] == [1, 0, 0]
    letters, told = read(place)
    assert [(each.reporter, each.received_at, each.key) for each in letters] == [
        ("router-1", NOW, key.id),
        ("router-1", NOW, None),
    ]
    assert "meters" in letters[0].reason
    assert '"event_id":"e1"' in letters[0].event
    assert "tk_…" in letters[0].event
    assert value not in repr(letters)
    assert value not in repr(sent)
    assert "a\ufffd appears twice" in letters[1].reason
    assert [line.split(": ")[:2] for line in told] == [
        ["not counted", "1 of router-1, last 2026-11-22 04:30:02+00:00"]
    ] * 2


@pytest.mark.parametrize("odd", [5, [], None])
async def test_what_is_no_event_at_all_is_kept_too(
    place: Place, material: KeyMaterial, odd: Any
) -> None:
    written(place, material, delivery("d1", [odd], NOW))
    (letter,), _ = read(place)
    assert (letter.key, letter.reason != "") == (None, True)


@pytest.mark.spec("26.7")
async def test_dead_letters_of_a_reporter_are_bounded_and_what_is_lost_is_counted(
    engine: AsyncEngine, place: Place, material: KeyMaterial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MOST_EVENTS", 5)
    events = [event(f"e{number}", NOW, meters=5) for number in range(8)]
    written(place, material, delivery("d1", events[:4], NOW))
    written(place, material, delivery("d2", events, NOW))
    letters, told = read(place)
    assert len(letters) == 5
    assert told[1].startswith("not counted and not kept: 3 of router-1")
    monkeypatch.setattr(retention, "MOST_EVENTS", 100)
    monkeypatch.setattr(retention, "MOST_BYTES", 20_000)
    large = [event(f"l{n}", NOW, meters=5, attributes={"a": "é" * 9_000}) for n in range(50)]
    written(place, material, delivery("d3", large, NOW))
    async with engine.connect() as connection:
        size = (await connection.execute(select(func.sum(DEAD_LETTERS.c.size)))).scalar_one()
    assert 20_000 <= size < 30_000


@pytest.mark.spec("26.7")
async def test_dead_letters_are_swept_with_the_events(
    engine: AsyncEngine, place: Place, material: KeyMaterial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MOST_EVENTS", 1)
    sent = [event("e1", NOW, meters=5), event("e2", NOW, meters=5), event("e3", NOW)]
    written(place, material, delivery("d1", sent, NOW))
    await prune(engine, NOW + timedelta(days=99), 100)
    assert [len(each) for each in read(place)] == [1, 2]
    await prune(engine, NOW + timedelta(days=101), 100)
    assert read(place) == ([], [])
    async with engine.connect() as connection:
        assert (await connection.execute(select(func.count()).select_from(EVENTS))).scalar() == 0
