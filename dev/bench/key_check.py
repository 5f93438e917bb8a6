"""Throughput of the API key check: ``python -m dev.bench key_check``.

The facade's own application behind its own server, with a real ledger of 10,000 keys in SQLite,
then in PostgreSQL where it is installed; only the cache of Organizations is filled by hand, so that
no cluster is needed. A second process sends requests over persistent connections, each with another
key and a domain. The result is requests per second of the server's processor time: other load of
the machine does not change it.
"""

import asyncio
import multiprocessing
import os
import resource
import socket
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import uvicorn
from fastapi import FastAPI
from sqlalchemy import insert

from cloister_api.auth.api_keys import ApiKeyCache, HostnameOwners
from cloister_api.auth.token_bucket import UnknownKeyLimit
from cloister_api.cache import ClusterCache
from cloister_api.http.connections import BoundedProtocol, Connections
from cloister_api.http.metrics import HttpMetrics
from cloister_api.ledger.database import Place, open_ledger
from cloister_api.ledger.keys.key_material import REGULAR_PREFIX, KeyMaterial, generate
from cloister_api.ledger.leases import Replicas
from cloister_api.ledger.tables import API_KEYS
from cloister_api.main import create_app
from cloister_api.settings import ApiSettings, LimitSettings
from cloister_clients.clock import utc_now
from cloister_crds.kinds import Organization
from dev.bench.usage_ingest import places

KEYS: Final = 10_000
CONNECTIONS: Final = 16
REQUESTS: Final = 60_000
TARGET: Final = 8_000
DOMAIN: Final = "containers.test"
ACME: Final = Organization.read(
    {
        "metadata": {"name": "acme", "uid": "u1"},
        "spec": {"namespace": "org-acme", "billing": {"tokenBilling": True}},
    }
)


class CacheStub:
    """A cache of custom resources with one Organization, or empty."""

    version = 1

    def __init__(self, *values: Organization) -> None:
        self._entries = {one.metadata.name: SimpleNamespace(value=one) for one in values}

    def get(self, name: str) -> Any:
        """Return an entry."""
        return self._entries.get(name)

    def by_index(self, index: str, key: str) -> list[Any]:  # noqa: ARG002 - there is one index here
        """Return the entries with a key."""
        found = self._entries.get(key)
        return [] if found is None else [found]


async def fill(place: Place, folder: Path) -> tuple[ApiKeyCache, list[str]]:
    """Put keys into a ledger, and build the key cache that reads them."""
    material = KeyMaterial.create(folder / "keys.json")
    engine = open_ledger(place)
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
            "created_at": datetime(2026, 1, 1, tzinfo=UTC),
            "max_tokens": 10**12,
            "metadata": "{}",
            "disabled": False,
            "change": 0,
        }
        for number, value in enumerate(values)
    ]
    async with engine.begin() as connection:
        await connection.execute(insert(API_KEYS), rows)
    cache = cast(
        "ClusterCache",
        SimpleNamespace(organizations=CacheStub(ACME), ready=True),
    )
    hosts = HostnameOwners(cache, DOMAIN)
    key_cache = ApiKeyCache(
        engine, material, hosts, utc_now, Replicas(engine, "bench"), None, UnknownKeyLimit(1000)
    )
    await key_cache.refresh()
    return key_cache, values


def application(key_cache: ApiKeyCache, folder: Path) -> FastAPI:
    """Build the facade's application around a key cache."""
    settings = ApiSettings.model_validate(
        {
            "ledger": {"path": folder / "ledger.db", "keyMaterial": folder / "keys.json"},
            "sources": {"kind": "git", "base": str(folder)},
        }
    )
    app = create_app(settings, lambda: None)
    cache = SimpleNamespace(ready=True)
    app.state.context = SimpleNamespace(cache=cache, accounts=SimpleNamespace(key_cache=key_cache))
    return app


def serve(listener: socket.socket, place: Place, folder: Path, pipe: Connection) -> None:
    """Serve until told to stop over the pipe, then send back the processor time used."""
    import uvloop  # noqa: PLC0415 - the server's process alone

    async def work() -> None:
        key_cache, values = await fill(place, folder)
        following = asyncio.create_task(key_cache.run())
        config = uvicorn.Config(
            application(key_cache, folder),
            http=cast(
                "type[asyncio.Protocol]",
                partial(BoundedProtocol, Connections(LimitSettings(), HttpMetrics())),
            ),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        pipe.send(values)
        await asyncio.to_thread(pipe.recv)
        begin = processor_time()
        pipe.send("go")
        await asyncio.to_thread(pipe.recv)
        pipe.send(processor_time() - begin)
        server.should_exit = True
        await serving
        following.cancel()

    uvloop.run(work())


def processor_time() -> float:
    """Return the processor time of this process, in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def one_connection(port: int, bodies: list[bytes], times: list[float]) -> None:
    """Send requests sequentially over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for body in bodies:
        begin = time.perf_counter()
        writer.write(
            b"POST /api/shim/validate-key HTTP/1.1\r\nHost: bench\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        await reader.readexactly(len(b'{"valid":true}'))
        times.append(time.perf_counter() - begin)
    writer.close()


async def ask(port: int, values: list[str], count: int) -> list[float]:
    """Send requests over several connections, and return each latency in seconds."""
    times: list[float] = []
    bodies = [
        b'{"api_key":"%s","domain":"web.acme.%s","path":"/v1/chat/completions"}'
        % (values[number % len(values)].encode(), DOMAIN.encode())
        for number in range(count)
    ]
    parts = [bodies[place::CONNECTIONS] for place in range(CONNECTIONS)]
    await asyncio.gather(*(one_connection(port, part, times) for part in parts))
    return times


def measure(name: str, place: Place) -> float:
    """Print the results for a ledger; return the checks per second of processor time."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as bound:
        ours, theirs = multiprocessing.get_context("fork").Pipe()
        server = multiprocessing.get_context("fork").Process(
            target=serve, args=(bound, place, Path(folder), theirs)
        )
        server.start()
        values = ours.recv()
        port = bound.getsockname()[1]
        asyncio.run(ask(port, values, 2_000))
        ours.send("measure")
        ours.recv()
        begin = time.perf_counter()
        times = sorted(asyncio.run(ask(port, values, REQUESTS)))
        elapsed = time.perf_counter() - begin
        ours.send("stop")
        used: float = ours.recv()
        server.join(30)
    print(
        f"{name}: {REQUESTS / used:.0f} checks per second of processor time, "
        f"{REQUESTS / elapsed:.0f} per second with the client on the same machine, "
        f"{statistics.median(times) * 1000:.2f} ms median, "
        f"{times[len(times) * 99 // 100] * 1000:.2f} ms p99"
    )
    return REQUESTS / used


def main() -> int:
    """Print the results; return 1 when the target is missed."""
    print(
        f"{REQUESTS} checks of {KEYS} keys over {CONNECTIONS} connections, {os.cpu_count()} cores; "
        f"target {TARGET} for each second of processor time"
    )
    with places() as found:
        rates = [measure(name, place) for name, place in found.items()]
    return 0 if min(rates) >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
