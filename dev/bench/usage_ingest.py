"""Throughput of usage event ingestion: ``python -m dev.bench usage_ingest``.

Signed reports of 1,000 events of 500 keys and 20 models, two seconds old at most, go through
everything that a report goes through but HTTP: signature, validation, prices, one transaction for
many reports, sums of five sizes of buckets, the ledger synced to disk. On SQLite, and
on PostgreSQL where it is installed. Each report is sent twice at the end: nothing may count again.
"""

import asyncio
import contextlib
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
from sqlalchemy import func, insert, select

from cloister_api.ledger.database import Place, migrate, open_ledger, open_writer
from cloister_api.ledger.keys.admin_keys import Reporters
from cloister_api.ledger.keys.key_material import REGULAR_PREFIX, KeyMaterial, generate
from cloister_api.ledger.tables import API_KEYS, KEY_TOTALS
from cloister_api.usage.ingest import PATH, Ingest, ReportSignature, signature_of
from cloister_api.usage.prices import Price, import_prices
from cloister_api.usage.writer import UsageWriter
from cloister_clients.clock import utc_now

KEYS: Final = 500
MODELS: Final = 20
REPORTS: Final = 300
EVENTS: Final = 1_000
SENDERS: Final = 60
TARGET: Final = 50_000
PRICES: Final = tuple(
    Price("router", "model_request", meter, "", 150_000_000)
    for meter in ("input_tokens", "output_tokens", "cached_input_tokens")
)


def report(number: int, keys: list[str], now: datetime) -> bytes:
    """Build a usage report."""
    chosen = random.Random(number)
    events = [
        {
            "event_id": f"{number:08x}-{place:04x}-{chosen.getrandbits(64):016x}",
            "request_id": f"req_{chosen.getrandbits(48):012x}",
            "occurred_at": (now - timedelta(seconds=chosen.random() * 2)).isoformat(),
            "operation": {"service": "router", "name": "model_request"},
            "api_key": chosen.choice(keys),
            "customer_requests": 1,
            "meters": [
                {"name": "input_tokens", "quantity": chosen.randrange(100, 4000)},
                {"name": "output_tokens", "quantity": chosen.randrange(10, 1000)},
                {"name": "cached_input_tokens", "quantity": chosen.randrange(100)},
            ],
            "attributes": {
                "model": f"model-{chosen.randrange(MODELS)}",
                "route": "/v1/chat/completions",
                "streaming": True,
            },
        }
        for place in range(EVENTS)
    ]
    return msgspec.json.encode({"delivery_id": f"d{number}", "events": events})


def sign(secret: bytes, nonce: str, body: bytes, reporter: str = "bench") -> dict[str, str]:
    """Return the headers of a report."""
    import hashlib  # noqa: PLC0415 - this function alone

    stamp = utc_now().isoformat().replace("+00:00", "Z")
    unsigned = ReportSignature(reporter, stamp, nonce, "")
    value = signature_of(secret, "POST", PATH, unsigned, hashlib.sha256(body).hexdigest())
    head = "x-cloister"
    return {
        f"{head}-reporter-id": reporter,
        f"{head}-timestamp": stamp,
        f"{head}-nonce": nonce,
        f"{head}-signature": value,
    }


@contextlib.contextmanager
def places() -> Iterator[dict[str, Place]]:
    """Yield the ledgers to measure."""
    from tests.support.servers.postgres import postgres  # noqa: PLC0415 - PostgreSQL may not be there

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        migrate(folder / "ledger.db")
        found: dict[str, Place] = {"SQLite": folder / "ledger.db"}
        try:
            found["PostgreSQL"] = stack.enter_context(postgres()).ledger()
        except RuntimeError as error:
            print(f"PostgreSQL is skipped: {error}")
        yield found


async def measure(name: str, place: Place, folder: Path) -> float:
    """Measure one ledger and return the events per second."""
    material = KeyMaterial.create(folder / f"{name}.json")
    engine = open_ledger(place)
    writing = open_writer(place)
    now = utc_now()
    values = [generate(REGULAR_PREFIX) for _ in range(KEYS)]
    rows = [
        {
            "key_index": material.index(value),
            "sealed": "",
            "shown": value[:8],
            "name": f"key {number}",
            "organization": "acme",
            "organization_id": "u1",
            "created_by": "ada",
            "created_at": now,
            "metadata": "{}",
            "disabled": False,
            "change": 0,
        }
        for number, value in enumerate(values)
    ]
    async with engine.begin() as connection:
        await connection.execute(insert(API_KEYS), rows)
    await import_prices(engine, datetime(2020, 1, 1, tzinfo=UTC), PRICES, now)
    reporters = Reporters(engine, material)
    secret = (await reporters.create("bench", now)).encode()
    ingest = Ingest(reporters, UsageWriter(writing, material), "cloister", utc_now)
    bodies = [report(number, values, now) for number in range(REPORTS)]
    signed = [sign(secret, f"d{number}", body) for number, body in enumerate(bodies)]
    running = asyncio.create_task(ingest.run())

    async def send(part: list[int]) -> int:
        taken = 0
        for number in part:
            response = await ingest.accept(await ingest.admit(signed[number]), bodies[number])
            taken += response.accepted
        return taken

    async def all_of_them() -> int:
        parts = [list(range(place, REPORTS, SENDERS)) for place in range(SENDERS)]
        return sum(await asyncio.gather(*map(send, parts)))

    used, begin = processor_time(), time.perf_counter()
    counted = await all_of_them()
    elapsed, used = time.perf_counter() - begin, processor_time() - used
    again = await all_of_them()
    async with engine.connect() as connection:
        query = select(func.sum(KEY_TOTALS.c.requests))
        total = (await connection.execute(query)).scalar_one()
    running.cancel()
    await engine.dispose()
    writing.dispose()
    if (counted, again, total) != (REPORTS * EVENTS, 0, REPORTS * EVENTS):
        raise RuntimeError(f"{counted} events counted, {again} again, {total} requests in sums")
    print(
        f"{name}: {counted / elapsed:9.0f} events per second, "
        f"{counted / used:9.0f} per second of this process's processor time"
    )
    return counted / elapsed


def processor_time() -> float:
    """Return the processor time of this process, in seconds."""
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_utime + found.ru_stime


def main() -> int:
    """Print the results; return 1 when SQLite misses the target."""
    with places() as found, tempfile.TemporaryDirectory() as folder:
        rates = {
            name: asyncio.run(measure(name, place, Path(folder))) for name, place in found.items()
        }
    print(f"target {TARGET} with SQLite")
    return 0 if rates["SQLite"] >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
