"""Reports while the ledger is stalled: refused before memory grows, and counted once later."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.errors import ApiError
from cloister_api.ledger.database import Place, open_writer
from cloister_api.ledger.keys.admin_keys import Reporter, Reporters
from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.ledger.leases import advance
from cloister_api.ledger.usage_tables import EVENTS
from cloister_api.usage import ingest
from cloister_api.usage.ingest import Ingest, ReportReceipt
from cloister_api.usage.writer import UsageWriter
from tests.support.builders.usage import event, key_in, report, sign
from tests.support.waiting import until

NOW = datetime(2026, 11, 22, 4, 30, 2, tzinfo=UTC)
REPORTS, EVENTS_EACH = 40, 25


@dataclass
class Sent:
    """A report as it is sent."""

    headers: Mapping[str, str]
    """Its headers."""
    body: bytes
    """Its body."""


@dataclass
class Tried:
    """Outcomes of many reports."""

    taken: int = 0
    """Events that were taken."""
    refused: int = 0
    """Reports that were refused with 429."""


@pytest.fixture
async def taking(engine: AsyncEngine, place: Place, material: KeyMaterial) -> AsyncIterator[Ingest]:
    """Return the endpoint's work, running."""
    writing = open_writer(place)
    made = Ingest(
        Reporters(engine, material), UsageWriter(writing, material), "cloister", lambda: NOW
    )
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    writing.dispose()


@pytest.fixture
async def reports(engine: AsyncEngine, material: KeyMaterial) -> list[Sent]:
    """Return reports of distinct events."""
    secret = await Reporters(engine, material).create("router-1", NOW)
    _, value = await key_in(engine, material, "ci", NOW)
    made = []
    for number in range(REPORTS):
        events = [event(f"e-{number}-{n}", NOW, api_key=value) for n in range(EVENTS_EACH)]
        body = report(f"d-{number}", events)
        made.append(Sent(sign(secret, f"d-{number}", body, NOW), body))
    return made


async def deliver(taking: Ingest, headers: Mapping[str, str], body: bytes) -> ReportReceipt:
    """Send a report: its headers first, then its body."""
    return await taking.accept(await taking.admit(headers), body)


async def send(taking: Ingest, one: Sent, tried: Tried) -> bool:
    """Send a report, and return whether it was accepted."""
    try:
        taken = await deliver(taking, one.headers, one.body)
    except ApiError as error:
        told = (error.status, error.code, error.retry_after)
        if told != (429, "RATE_LIMITED", 1):
            raise
        tried.refused += 1
        return False
    tried.taken += taken.accepted
    return True


@pytest.mark.parametrize("bound", ["WAITING_EVENTS", "WAITING_BYTES"])
async def test_reports_are_refused_while_the_ledger_is_stalled(
    engine: AsyncEngine,
    taking: Ingest,
    reports: list[Sent],
    bound: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = {"WAITING_EVENTS": 5 * EVENTS_EACH, "WAITING_BYTES": 5 * len(reports[-1].body)}[bound]
    monkeypatch.setattr(ingest, bound, most)
    tried = Tried()
    async with engine.begin() as holding:
        await advance(holding, "usage")  # as a writer that does not end: all others wait
        sending = [asyncio.create_task(send(taking, one, tried)) for one in reports]

        async def refused() -> bool:
            return tried.refused >= REPORTS - 6

        await until(refused, what="all but a few reports to be refused")
        assert tried.taken == 0
        waiting = sum(not task.done() for task in sending)
        assert 1 <= waiting <= 6, "no more wait than may"
    sent = await asyncio.gather(*sending)
    assert tried.taken == sent.count(True) * EVENTS_EACH
    # Reporters send again what was refused, and what was not acknowledged.
    for one in reports:

        async def goes(one: Sent = one) -> bool:
            return await send(taking, one, tried)

        await until(goes, every=0.01)
    assert tried.taken == REPORTS * EVENTS_EACH
    async with engine.connect() as connection:
        kept = await connection.execute(select(func.count()).select_from(EVENTS))
        assert kept.scalar_one() == REPORTS * EVENTS_EACH


async def test_what_is_refused_waits_for_nothing_afterwards(
    taking: Ingest, reports: list[Sent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports with wrong signatures and too large ones leave no trace in what is counted."""
    monkeypatch.setattr(ingest, "WAITING_BYTES", len(reports[0].body) + 100)
    wrong = {**reports[0].headers, "x-cloister-signature": "0" * 64}
    for _ in range(3):
        with pytest.raises(ApiError) as caught:
            await deliver(taking, wrong, reports[0].body)
        assert caught.value.status == 401
    with pytest.raises(ApiError) as large:
        await deliver(taking, reports[0].headers, reports[0].body + b" " * 200)
    assert large.value.status == 429
    assert (await deliver(taking, reports[0].headers, reports[0].body)).accepted == EVENTS_EACH


async def test_a_reporter_is_looked_up_once_for_all_that_wait(
    engine: AsyncEngine,
    taking: Ingest,
    reports: list[Sent],
    material: KeyMaterial,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later report is looked up again: a revoked reporter is refused at once."""
    looks = 0
    find = Reporters.find

    async def counting(self: Reporters, name: str) -> Reporter | None:
        nonlocal looks
        looks += 1
        return await find(self, name)

    monkeypatch.setattr(Reporters, "find", counting)
    first, last = reports[:-1], reports[-1]
    taken = await asyncio.gather(*(deliver(taking, one.headers, one.body) for one in first))
    assert sum(one.accepted for one in taken) == len(first) * EVENTS_EACH
    assert looks == 1
    assert await Reporters(engine, material).revoke("router-1", NOW)
    with pytest.raises(ApiError) as caught:
        await deliver(taking, last.headers, last.body)
    assert caught.value.status == 401
