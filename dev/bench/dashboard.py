"""The budget of the dashboard: ``python -m dev.bench dashboard [--more N]``.

A real API server, a real ledger and one ``cloister api`` process with a dashboard: bytes and
requests of the first page, the time of a page of the list beside few and many Containers, the
memory of streams, and the rate of the list of containers by the API beside them.
"""

import asyncio
import contextlib
import gzip
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import click
import httpx
import yaml

from cloister_api.commands.keys import create_key
from cloister_api.ledger.database import open_ledger, place_of
from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.ledger.keys.sessions import SessionMethod, SessionTable
from cloister_api.settings import ApiSettings
from cloister_clients.clock import utc_now
from cloister_clients.kube import KubeClient, KubeConfig
from dev import cluster as local
from dev.bench.container_list import (
    OWN,
    REQUESTS,
    WARM_UP,
    containers,
    organization,
    send_requests,
    write_settings,
)
from dev.bench.scale.environment import create_all
from dev.bench.scale.measurements import usage
from tests.support.ports import free_port
from tests.support.programs.dashboard import COOKIE
from tests.support.programs.facade import ADMIN, Facade, start_facade
from tests.support.programs.operator import Installation

FIRST: Final = 50
"""Containers of a page."""
PAGES: Final = 300
"""Requests of a page."""
STREAMS: Final = 2_000
BESIDE: Final = 500
"""Streams beside which the API is measured."""
PER_SESSION: Final = 100
MOST_BYTES, MOST_REQUESTS = 45_000, 7
"""First page, compressed."""
MOST_MILLISECONDS: Final = 15.0
"""Time of a page of the list, 95 of 100."""
MOST_KILOBYTES: Final = 32.0
"""Memory of a stream."""
LEAST_RATE: Final = 0.9
"""Rate of the API beside streams, of that without."""


@dataclass(frozen=True, slots=True)
class Results:
    """What was measured."""

    size: int
    """Bytes of the first page and all that it loads, compressed."""
    requests: int
    """Requests of the first page."""
    few: list[float]
    """Seconds of a page of the list, ascending, with fifty Containers."""
    many: list[float]
    """The same with many more."""
    stream_kilobytes: float
    """Memory of one stream."""
    rate: float
    """Rate of the API beside streams, of that without."""

    @property
    def missed(self) -> bool:
        """Whether a part of the budget does not hold."""
        return (
            self.size > MOST_BYTES
            or self.requests > MOST_REQUESTS
            or at_95(self.few) > MOST_MILLISECONDS
            or self.stream_kilobytes > MOST_KILOBYTES
            or self.rate < LEAST_RATE
        )


def at_95(seconds: Sequence[float]) -> float:
    """Return the milliseconds that 95 of 100 do not exceed, of ascending seconds."""
    return seconds[len(seconds) * 95 // 100] * 1000


def main(options: Sequence[str] = ()) -> int:
    """Run the benchmark with command line options; return 1 when the budget does not hold."""
    result: int = command.main(list(options), prog_name="dashboard", standalone_mode=False)
    return result


@click.command()
@click.option("--more", default=10_000, show_default=True, help="Containers of the long list.")
@click.option("--name", default="bench-dashboard", show_default=True, help="Name of the cluster.")
def command(*, more: int, name: str) -> int:
    """Measure the dashboard."""
    local.down(name)
    cluster = local.up(name, node=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(measure(cluster, Path(folder), more))
    finally:
        local.down(name)
    print(f"first page: {found.size:,} bytes in {found.requests} requests")
    for title, times in ((FIRST, found.few), (more, found.many)):
        print(
            f"page of the list, {title} containers: {statistics.median(times) * 1000:.1f} ms"
            f" median, {at_95(times):.1f} ms p95 (target {MOST_MILLISECONDS})"
        )
    print(f"a stream: {found.stream_kilobytes:.0f} kB of {STREAMS} (target {MOST_KILOBYTES})")
    print(f"GET /api/containers beside {BESIDE} streams: {found.rate:.2f} (target {LEAST_RATE})")
    return int(found.missed)


async def measure(cluster: local.Cluster, folder: Path, more: int) -> Results:
    """Return the results."""
    Installation(cluster, folder).prepare()
    settings, address = write_own_settings(cluster, folder)
    config = KubeConfig.from_file(cluster.kubeconfig)
    async with KubeClient(config, field_manager="bench", user_agent="bench") as client:
        for slug, count in (("acme", FIRST), ("api", OWN)):
            await create_all(client, organization(slug))
            await create_all(client, containers(slug, count))
        key = await create_key(ApiSettings.read(settings), "api", ADMIN, "bench", None)
        cookies = await sessions(settings, STREAMS // PER_SESSION)
        with start_facade(settings) as facade:
            size, requests = await first_page(address, cookies[0])
            few = await pages(address, cookies[0])
            kilobytes, rate = await beside_streams(facade, address, cookies, key)
        await create_all(client, containers("acme", more, first=FIRST))
        with start_facade(settings):
            many = await pages(address, cookies[0])
    return Results(size, requests, few, many, kilobytes, rate)


def write_own_settings(cluster: local.Cluster, folder: Path) -> tuple[Path, str]:
    """Write the settings of a facade with a dashboard; return their file and its address."""
    path = write_settings(cluster, folder)
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    streams = {"perSession": PER_SESSION, "perUser": STREAMS, "perProcess": STREAMS}
    own = {"address": address, "listen": {"port": port}, "streams": streams}
    document = {
        **yaml.safe_load(path.read_text()),
        "dashboard": own,
        "limits": {"connections": STREAMS + 1_000},
    }
    path.write_text(yaml.safe_dump(document))
    return path, address


async def sessions(settings: Path, count: int) -> list[str]:
    """Sign in so many times, and return the cookies."""
    read = ApiSettings.read(settings)
    engine = open_ledger(place_of(read.ledger))
    material = KeyMaterial.read(settings.parent / "keys.json")
    table, life, now = SessionTable(engine, material), timedelta(hours=24), utc_now()
    made = [
        await table.create(
            ADMIN,
            method=SessionMethod.ONCE,
            agent="bench",
            now=now,
            life=life,
            authenticated_at=now,
        )
        for _ in range(count)
    ]
    await engine.dispose()
    return [f"{COOKIE}={value}" for _, value in made]


@contextlib.asynccontextmanager
async def browser(address: str, cookie: str) -> AsyncIterator[httpx.AsyncClient]:
    """Provide a client that sends what a browser sends."""
    headers = {
        "Cookie": cookie,
        "Sec-Fetch-Site": "same-origin",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=60) as client:
        yield client


async def first_page(address: str, cookie: str) -> tuple[int, int]:
    """Return bytes, compressed, and requests of the list and what it loads."""
    async with browser(address, cookie) as client:
        page = (await client.get("/o/acme/containers")).raise_for_status().text
        if page.count('id="row-') != FIRST:
            raise RuntimeError("the page does not show its containers")
        files = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page))
        size = len(gzip.compress(page.encode()))
        for each in files:
            answer = (await client.get(each)).raise_for_status()
            size += int(answer.headers["content-length"])
    return size, 1 + len(files)


async def pages(address: str, cookie: str) -> list[float]:
    """Return the seconds of many requests of the list, ascending."""
    times = []
    async with browser(address, cookie) as client:
        for number in range(PAGES + 20):
            begin = time.perf_counter()
            (await client.get("/o/acme/containers")).raise_for_status()
            if number >= 20:  # noqa: PLR2004 - the first ones warm up
                times.append(time.perf_counter() - begin)
    return sorted(times)


async def beside_streams(
    facade: Facade, address: str, cookies: list[str], key: str
) -> tuple[float, float]:
    """Return the memory of one of many streams in kB, and the API's rate beside some of them."""
    process = facade.process.pid
    alone = await rate(facade, key)
    before = resident(process)
    async with contextlib.AsyncExitStack() as stack:
        for number in range(STREAMS):
            await stack.enter_async_context(stream(address, cookies[number // PER_SESSION]))
            if number + 1 == BESIDE:
                beside = await rate(facade, key)
        grown = resident(process) - before
    return grown / STREAMS, beside / alone


def resident(pid: int) -> int:
    """Return the resident memory of a process in kB (proc(5), "/proc/PID/status")."""
    (line,) = (
        each
        for each in Path(f"/proc/{pid}/status").read_text().splitlines()
        if each.startswith("VmRSS:")
    )
    return int(line.split()[1])


async def rate(facade: Facade, key: str) -> float:
    """Return the API's requests per second of the facade's processor time."""
    host, port = facade.base.removeprefix("http://").split(":")
    await send_requests(host, int(port), key, WARM_UP)
    before = usage(facade.process.pid).processor
    await send_requests(host, int(port), key, REQUESTS)
    return REQUESTS / (usage(facade.process.pid).processor - before)


@contextlib.asynccontextmanager
async def stream(address: str, cookie: str) -> AsyncIterator[None]:
    """Keep a stream open."""
    host, port = address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        "GET /o/acme/events?part=containers HTTP/1.1\r\n"
        f"Host: {host}:{port}\r\nCookie: {cookie}\r\n"
        "Sec-Fetch-Site: same-origin\r\n\r\n".encode()
    )
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    if not head.startswith("HTTP/1.1 200"):
        raise RuntimeError(head)
    await reader.readuntil(b"event: alive")
    try:
        yield
    finally:
        writer.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
