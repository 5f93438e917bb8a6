"""Latency of usage queries: ``python -m dev.bench usage_queries``.

3 million events of 500 keys and 20 models, evenly over 30 days, are in the ledger, as their sums
alone: they are generated straight into the tables of sums, each event in its own buckets. Once the
keys belong to 20 organizations, of which one is queried; once all belong to one, whose results have
10,000 rows. Each query runs seven times; the median counts. On SQLite, and on PostgreSQL where it
is installed. ``one key`` of a large organization is the worst case: no key has buckets apart.
"""

import asyncio
import random
import statistics
import sys
import time
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import insert

from cloister_api.ledger.bulk import insert_rows
from cloister_api.ledger.database import Place, open_ledger, open_writer
from cloister_api.ledger.tables import API_KEYS
from cloister_api.ledger.usage_tables import NAMES, POINTS, ROLLUPS, SUMS
from cloister_api.usage.queries import UsageQueries
from cloister_api.usage.windows import DAY, LEVELS, WINDOWS, Sums, add
from cloister_api.usage.windows import Place as Bucket
from dev.bench.usage_ingest import places

EVENTS: Final = 3_000_000
KEYS: Final = 500
ORGANIZATIONS: Final = (20, 1)
"""Numbers of organizations that share the keys; the target holds for the first."""
MODELS: Final = 20
DAYS: Final = 30
NOW: Final = datetime(2026, 11, 22, 13, 37, 11, tzinfo=UTC)
TARGET: Final = 50.0
"""Milliseconds."""
ROUNDS: Final = 7
PAGE: Final = 100_000


def organization_of(key: int, organizations: int) -> int:
    """Return the number of the organization that a key belongs to."""
    return 1 + (key - 1) * organizations // KEYS


def drawn(organizations: int) -> dict[int, dict[Bucket, Sums]]:
    """Generate events and return their sums by bucket size, as far as buckets are kept."""
    chosen = random.Random(1)
    sums: dict[int, dict[Bucket, Sums]] = {level.seconds: {} for level in LEVELS}
    now = int(NOW.timestamp())
    for _ in range(EVENTS):
        age = int(chosen.random() * DAYS * DAY)
        key, model = 1 + int(chosen.random() * KEYS), 101 + int(chosen.random() * MODELS)
        organization = organization_of(key, organizations)
        for level in LEVELS:
            if level.keep is None or age <= level.keep:
                begin = (now - age) // level.seconds * level.seconds
                add(sums[level.seconds], (organization, begin, key, model), (100, 10, 0, 1, 1000))
    return sums


async def fill(place: Place, sums: dict[int, dict[Bucket, Sums]], organizations: int) -> None:
    """Write names, keys and sums into a ledger."""
    engine = open_ledger(place)
    async with engine.begin() as connection:
        names = [
            {"id": 1 + n, "kind": "organization", "name": f"id-{1 + n}"}
            for n in range(organizations)
        ]
        names += [{"id": 101 + n, "kind": "model", "name": f"model-{n}"} for n in range(MODELS)]
        await connection.execute(insert(NAMES), names)
        rows = [
            {
                "id": 1 + n,
                "key_index": n.to_bytes(32, "big"),
                "sealed": "",
                "shown": "tk_00000",
                "name": f"key {n}",
                "organization": f"org-{organization_of(1 + n, organizations)}",
                "organization_id": f"id-{organization_of(1 + n, organizations)}",
                "created_by": "ada",
                "created_at": NOW,
                "metadata": "{}",
                "disabled": False,
                "change": 0,
            }
            for n in range(KEYS)
        ]
        await connection.execute(insert(API_KEYS), rows)
    await engine.dispose()
    writing = open_writer(place)
    place_columns = ("level", "organization", "bucket")
    with writing.begin() as connection:
        for level in LEVELS:
            size, buckets = level.seconds, sums[level.seconds]
            points: dict[Bucket, Sums] = {}
            flat = []
            for (organization, begin, key, model), values in sorted(buckets.items()):
                flat.append((size, organization, begin, key, model, *values))
                add(points, (organization, begin, model, 0), values)
            columns = (*place_columns, "key_id", "model", *SUMS)
            flat = flat if level.by_key else []
            for begin in range(0, len(flat), PAGE):
                insert_rows(connection, ROLLUPS, columns, flat[begin : begin + PAGE])
            reported = [(size, *bucket[:3], *values) for bucket, values in points.items()]
            reported = reported if level.points else []
            insert_rows(connection, POINTS, (*place_columns, "model", *SUMS), reported)
    with writing.connect() as connection:
        connection.exec_driver_sql("ANALYZE")
        connection.commit()
    writing.dispose()


async def measure(name: str, place: Place) -> float:
    """Run the queries, print each median, and return the longest one."""
    engine = open_ledger(place)
    usage = UsageQueries(engine)
    worst = 0.0
    for window_name, window in [("all time", None), *WINDOWS.items()]:
        times: dict[str, list[float]] = {"usage": [], "one key": [], "series": []}
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            await usage.aggregated("id-1", window, NOW)
            middle = time.perf_counter()
            await usage.of_key("id-1", 7, window, NOW)
            end = time.perf_counter()
            times["usage"].append(middle - begin)
            times["one key"].append(end - middle)
            if window is not None:
                await usage.series("id-1", window, NOW)
                times["series"].append(time.perf_counter() - end)
        reported = {kind: statistics.median(each) * 1000 for kind, each in times.items() if each}
        worst = max(worst, *reported.values())
        shown = ", ".join(f"{kind} {value:.1f} ms" for kind, value in reported.items())
        print(f"{name}, {window_name}: {shown}")
    await engine.dispose()
    return worst


def main() -> int:
    """Print the results; return 1 when a query takes longer than the target."""
    worst = 0.0
    for organizations in ORGANIZATIONS:
        sums = drawn(organizations)
        rows = {size: len(buckets) for size, buckets in sums.items()}
        print(f"{EVENTS} events of {organizations} organizations, rows by bucket: {rows}")
        with places() as found:
            for name, place in found.items():
                asyncio.run(fill(place, sums, organizations))
                longest = asyncio.run(measure(name, place))
                if organizations == ORGANIZATIONS[0]:
                    worst = max(worst, longest)
    print(f"longest median for {ORGANIZATIONS[0]}: {worst:.1f} ms, target {TARGET:.0f} ms")
    return 0 if worst < TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
