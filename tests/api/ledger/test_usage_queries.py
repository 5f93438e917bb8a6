"""Questions about usage on both databases, against plain sums of the same events."""

import random
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.database import Place
from cloister_api.ledger.keys.api_keys import ApiKeys
from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.usage.prices import Price, import_prices
from cloister_api.usage.queries import MOST_GROUPS, BreakdownBy, Breakdowns, UsageQueries
from cloister_api.usage.retention import prune
from cloister_api.usage.windows import WINDOWS, span_of
from tests.support.builders.usage import delivery, event, key_in, written

NOW = datetime(2026, 11, 22, 4, 30, 2, tzinfo=UTC)
PRICES = (
    Price("router", "model_request", "input_tokens", "", 1_000_000_000),
    Price("router", "model_request", "request", "", 500_000_000),
)
KINDS = ("tokens", "input_tokens", "output_tokens", "requests")


def events_of(keys: list[str]) -> list[dict[str, Any]]:
    """Make events in every window, and one that is older than all."""
    chosen = random.Random(3)
    ages = [0.0, 4.0, 200.0, 800.0, 1700.0, 3000.0, 80_000.0, 500_000.0, 2_400_000.0, 5_000_000.0]
    ages += [7_500_000.0, *(chosen.random() * 7_700_000 for _ in range(60))]
    return [
        event(
            f"e{number}",
            NOW - timedelta(seconds=age),
            api_key=keys[number % len(keys)],
            attributes={"model": f"model-{number % 3}"},
            meters=[
                {"name": "input_tokens", "quantity": 1 + number},
                {"name": "output_tokens", "quantity": 1000 + number},
            ],
        )
        for number, age in enumerate(ages)
    ]


def plain(events: list[dict[str, Any]]) -> dict[str, int]:
    """Add events up."""
    given = sum(one["meters"][0]["quantity"] for one in events)
    made = sum(one["meters"][1]["quantity"] for one in events)
    return dict(zip(KINDS, (given + made, given, made, len(events)), strict=True))


@pytest.fixture
async def filled(
    engine: AsyncEngine, place: Place, material: KeyMaterial
) -> tuple[UsageQueries, list[dict[str, Any]], list[tuple[int, str]]]:
    """Return a ledger with usage of two organizations."""
    await import_prices(engine, datetime(2020, 1, 1, tzinfo=UTC), PRICES, NOW)
    made = [await key_in(engine, material, f"k{n}", NOW) for n in range(3)]
    _, foreign = await key_in(engine, material, "k0", NOW, organization="other")
    events = events_of([value for _, value in made])
    written(place, material, delivery("d1", events, NOW))
    other = [event("f1", NOW, api_key=foreign)]
    written(place, material, delivery("d2", other, NOW))
    await prune(engine, NOW, 100)
    return UsageQueries(engine), events, [(key.id, value) for key, value in made]


@pytest.mark.spec("10.4", "10.5", "27.1", "27.2")
@pytest.mark.parametrize("name", [*WINDOWS, None])
async def test_every_window_holds_exactly_its_events(
    filled: tuple[UsageQueries, list[dict[str, Any]], list[tuple[int, str]]], name: str | None
) -> None:
    usage, events, keys = filled
    window = WINDOWS[name] if name else None
    if window:
        span = span_of(window, NOW)
        times = {
            e["event_id"]: datetime.fromisoformat(e["occurred_at"]).timestamp() for e in events
        }
        events = [e for e in events if span.begin <= times[e["event_id"]] < span.end]
    wanted = plain(events)
    found = asdict(await usage.aggregated("id-acme", window, NOW))
    assert {kind: found[kind] for kind in KINDS} == wanted
    cost = wanted["input_tokens"] / 1_000_000 + wanted["requests"] / 2
    assert found["cost"] == pytest.approx(cost * 1.0 if cost else 0, abs=1e-9)
    for number, (key_id, value) in enumerate(keys):
        own = [e for e in events if e["api_key"] == value]
        one = asdict(await usage.of_key("id-acme", key_id, window, NOW))
        sums = plain(own)
        assert one["prompt_tokens"] == sums["input_tokens"]
        assert one["completion_tokens"] == sums["output_tokens"]
        assert one["requests"] == len(own)
        told = found["keys"].get(f"k{number}")
        assert (told is None) == (not own)
        if told:
            assert {kind: told[f"total_{kind}"] for kind in KINDS} == sums
            assert told["cost"] == one["cost"]
            for model, part in told["models"].items():
                wanted_part = plain([e for e in own if e["attributes"]["model"] == model])
                assert {kind: part[kind] for kind in KINDS} == wanted_part
    if window:
        await series_agrees(usage, name or "", events)


@pytest.mark.parametrize("by", BreakdownBy)
@pytest.mark.parametrize("name", WINDOWS)
async def test_every_breakdown_adds_up_to_its_events(
    engine: AsyncEngine,
    filled: tuple[UsageQueries, list[dict[str, Any]], list[tuple[int, str]]],
    name: str,
    by: BreakdownBy,
) -> None:
    _, events, keys = filled
    names = {value: f"k{number}" for number, (_, value) in enumerate(keys)}
    found = await Breakdowns(engine).of("id-acme", WINDOWS[name], by, NOW)
    span = span_of(WINDOWS[name], NOW)
    assert len(found.data_points) == len(span.points)
    for begin, point in zip(span.points, found.data_points, strict=True):
        wanted: dict[tuple[str | None, str | None], list[dict[str, Any]]] = {}
        for each in events:
            at = datetime.fromisoformat(each["occurred_at"]).timestamp()
            if begin <= at < begin + span.interval:
                key = None if by is BreakdownBy.MODEL else names[each["api_key"]]
                model = None if by is BreakdownBy.KEY else each["attributes"]["model"]
                wanted.setdefault((key, model), []).append(each)
        assert datetime.fromisoformat(point.time).timestamp() == begin
        assert point.others is None
        assert {(each.key, each.model) for each in point.groups} == wanted.keys()
        for group in point.groups:
            sums = plain(wanted[group.key, group.model])
            assert {kind: getattr(group, kind) for kind in KINDS} == sums
            cost = sums["input_tokens"] / 1_000_000 * 1.0 + sums["requests"] / 2
            assert group.cost == pytest.approx(cost, abs=1e-9)


async def test_the_groups_that_cost_most_are_shown_and_the_others_summed(
    engine: AsyncEngine, place: Place, material: KeyMaterial
) -> None:
    await import_prices(engine, datetime(2020, 1, 1, tzinfo=UTC), PRICES, NOW)
    events = []
    for number in range(MOST_GROUPS + 5):
        _, value = await key_in(engine, material, f"k{number:03}", NOW)
        meters = [{"name": "input_tokens", "quantity": 10 + number}]
        events.append(event(f"e{number}", NOW, api_key=value, meters=meters))
    written(place, material, delivery("d1", events, NOW))
    found = await Breakdowns(engine).of("id-acme", WINDOWS["5m"], BreakdownBy.BOTH, NOW)
    last = found.data_points[-1]
    assert [each.key for each in last.groups] == [
        f"k{number:03}" for number in range(5, MOST_GROUPS + 5)
    ]
    assert {each.model for each in last.groups} == {"north"}
    assert last.others is not None
    assert (last.others.tokens, last.others.requests) == (10 + 11 + 12 + 13 + 14, 5)
    usage = await UsageQueries(engine).aggregated("id-acme", WINDOWS["5m"], NOW)
    shown = sum(each.cost for each in last.groups) + last.others.cost
    assert shown == pytest.approx(usage.cost, abs=1e-9)


async def test_a_breakdown_without_usage_has_empty_points(engine: AsyncEngine) -> None:
    found = await Breakdowns(engine).of("nobody", WINDOWS["15m"], BreakdownBy.KEY, NOW)
    assert (found.interval, len(found.data_points)) == ("15s", 60)
    assert all(not each.groups and each.others is None for each in found.data_points)


async def series_agrees(usage: UsageQueries, name: str, events: list[dict[str, Any]]) -> None:
    """Check that the points of a window are the sums of its events."""
    series = asdict(await usage.series("id-acme", WINDOWS[name], NOW))
    span = span_of(WINDOWS[name], NOW)
    points = series["data_points"]
    assert len(points) == len(span.points)
    for begin, point in zip(span.points, points, strict=True):
        own = [
            e
            for e in events
            if begin <= datetime.fromisoformat(e["occurred_at"]).timestamp() < begin + span.interval
        ]
        assert datetime.fromisoformat(point["time"]).timestamp() == begin
        assert {kind: point[kind] for kind in KINDS} == plain(own)
        assert sum(part["tokens"] for part in point["models"].values()) == point["tokens"]
        assert set(point["models"]) == {e["attributes"]["model"] for e in own}


@pytest.mark.spec("10.2")
async def test_keys_of_one_name_are_summed_and_deleted_ones_stay(
    engine: AsyncEngine, place: Place, material: KeyMaterial
) -> None:
    first, value = await key_in(engine, material, "ci", NOW)
    written(place, material, delivery("d1", [event("e1", NOW, api_key=value)], NOW))
    await ApiKeys(engine, material).delete(first.id, now=NOW)
    _, value = await key_in(engine, material, "ci", NOW)
    late = [event("e2", NOW, api_key=value, attributes=None)]
    written(place, material, delivery("d2", late, NOW))
    for window in (None, WINDOWS["5m"]):
        usage = await UsageQueries(engine).aggregated("id-acme", window, NOW)
        found = asdict(usage)
        assert found["keys"]["ci"]["total_requests"] == 2
        assert set(found["keys"]["ci"]["models"]) == {"north", "unknown"}


@pytest.mark.spec("10.5")
async def test_an_organization_without_usage_has_zeros(engine: AsyncEngine) -> None:
    usage = UsageQueries(engine)
    found = asdict(await usage.aggregated("nobody", None, NOW))
    assert found == {**dict.fromkeys(KINDS, 0), "cost": 0.0, "keys": {}}
    series = asdict(await usage.series("nobody", WINDOWS["15m"], NOW))
    assert (series["interval"], len(series["data_points"])) == ("15s", 60)
    assert series["data_points"][-1] == {
        "time": "2026-11-22T04:30:00Z",
        **dict.fromkeys(KINDS, 0),
        "models": {},
    }
