"""Usage for tests: keys in a ledger, events, signed reports, and a writer that may be killed."""

import contextlib
import hashlib
import json
import random
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.ledger.database import Place, open_writer
from cloister_api.ledger.keys.api_keys import ApiKey, ApiKeys
from cloister_api.ledger.keys.key_material import KeyMaterial, KeySealer
from cloister_api.usage.events import judge_events, read_report
from cloister_api.usage.ingest import PATH, ReportSignature, signature_of
from cloister_api.usage.writer import ReportOutcome, UsageWriter, VerifiedReport

__all__ = [
    "delivery",
    "event",
    "key_in",
    "report",
    "sign",
    "some_events",
    "write_until_killed",
    "written",
]


async def key_in(
    engine: AsyncEngine, material: KeySealer, name: str, now: datetime, organization: str = "acme"
) -> tuple[ApiKey, str]:
    """Make a key in a ledger."""
    return await ApiKeys(engine, material).create(
        organization=organization,
        organization_id=f"id-{organization}",
        user="ada",
        name=name,
        now=now,
    )


def event(event_id: str, at: datetime, /, **more: Any) -> dict[str, Any]:
    """Make an event as a router reports it; None leaves a field out."""
    made = {
        "event_id": event_id,
        "occurred_at": at.isoformat(),
        "operation": {"service": "router", "name": "model_request"},
        "customer_requests": 1,
        "meters": [
            {"name": "input_tokens", "quantity": 100},
            {"name": "output_tokens", "quantity": 10},
        ],
        "attributes": {"model": "north"},
        **more,
    }
    return {name: value for name, value in made.items() if value is not None}


def some_events(seed: int, count: int, keys: list[str], now: datetime) -> list[dict[str, Any]]:
    """Make events that differ in everything, most of the last seconds, some much older."""
    chosen = random.Random(seed)
    found = []
    for number in range(count):
        back = chosen.choice([1.0, 5.0, 5.0, 600.0, 90_000.0, 7_000_000.0])
        given = chosen.randrange(1_000)
        found.append(
            event(
                f"{seed}-{number}",
                now - timedelta(seconds=chosen.random() * back),
                api_key=chosen.choice(keys),
                customer_requests=chosen.randrange(2),
                attributes={"model": f"model-{chosen.randrange(3)}"},
                meters=[
                    {"name": "input_tokens", "quantity": given},
                    {"name": "output_tokens", "quantity": chosen.randrange(1_000)},
                    {"name": "cached_input_tokens", "quantity": chosen.randrange(given + 1)},
                ],
            )
        )
    return found


def report(nonce: str, events: list[Any]) -> bytes:
    """Make the body of a report."""
    return json.dumps({"delivery_id": nonce, "events": events}).encode()


def sign(
    secret: str, nonce: str, body: bytes, at: datetime, reporter: str = "router-1"
) -> dict[str, str]:
    """Return the headers of a report."""
    stamp = at.isoformat().replace("+00:00", "Z")
    unsigned = ReportSignature(reporter, stamp, nonce, "")
    digest = hashlib.sha256(body).hexdigest()
    return {
        "x-cloister-reporter-id": reporter,
        "x-cloister-timestamp": stamp,
        "x-cloister-nonce": nonce,
        "x-cloister-signature": signature_of(secret.encode(), "POST", PATH, unsigned, digest),
    }


def delivery(nonce: str, events: list[Any], now: datetime) -> VerifiedReport:
    """Make a report whose signature was right."""
    body = report(nonce, events)
    received = round(now.timestamp() * 1_000_000)
    taken, rejected = judge_events(read_report(body), received)
    return VerifiedReport(
        "router-1", nonce, hashlib.sha256(body).digest(), received, taken, rejected
    )


def written(place: Place, material: KeySealer, *deliveries: VerifiedReport) -> list[ReportOutcome]:
    """Write reports in one transaction."""
    engine = open_writer(place)
    try:
        return UsageWriter(engine, material).write(deliveries)
    finally:
        engine.dispose()


def write_until_killed(
    place: str, keys: str, deliveries: list[VerifiedReport], together: int, pipe: Connection
) -> None:
    """Write reports one transaction after the other, and report each that is committed.

    The body of a process that a test kills.
    """
    where: Place = make_url(place) if place.startswith("postgresql") else Path(place)
    writer = UsageWriter(open_writer(where), KeyMaterial.read(Path(keys)))
    with contextlib.suppress(BrokenPipeError):
        pipe.send("ready")
        for begin in range(0, len(deliveries), together):
            part = deliveries[begin : begin + together]
            writer.write(part)
            pipe.send([one.nonce for one in part])
        pipe.send("done")
