"""Throughput of the list of containers: ``python -m dev.bench container_list [--others N]``.

A real API server, a real ledger and one ``cloister api`` process. An organization with 10
Containers sends requests over persistent connections: first with no other Containers, then with
those of other organizations. The result is requests per second of the facade's processor time, so
that other load of the machine does not change it.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import yaml

from cloister_api.commands.keys import create_key
from cloister_api.settings import ApiSettings
from cloister_clients.kube import KubeClient, KubeConfig
from cloister_clients.kube.kinds import NAMESPACE, KindRef, of
from cloister_crds.kinds import Container, Organization
from dev import cluster as local
from dev.bench.scale.environment import create_all
from dev.bench.scale.measurements import usage
from dev.chart.helm import NAMESPACE as SYSTEM
from tests.support.programs.facade import ADMIN, DOMAIN, run_command, start_facade
from tests.support.programs.operator import Installation, manifest
from tests.support.programs.published_settings import publish

OWN: Final = 10
PER_ORGANIZATION: Final = 100
CONNECTIONS: Final = 8
REQUESTS: Final = 20_000
WARM_UP: Final = 1_000
TARGET: Final = 5_000
"""Minimum of requests per second of processor time."""
TENTH: Final = 0.9
"""Minimum fraction of that rate with the Number of Containers of other organizations."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Result of one run over all connections."""

    per_processor_second: float
    """Requests per second of the facade's processor time."""
    per_second: float
    """Requests per second, with the client on the same machine."""
    times: list[float]
    """Latencies in seconds, ascending."""
    size: int
    """Size of a response body, in bytes."""


def main(options: Sequence[str] = ()) -> int:
    """Run the benchmark with command line options; return 1 when a target is missed.

    Parameters
    ----------
    options
        Such as ``--others 1000``.
    """
    result: int = command.main(list(options), prog_name="container_list", standalone_mode=False)
    return result


@click.command()
@click.option(
    "--others",
    default=10_000,
    show_default=True,
    help="Number of Containers of other organizations.",
)
@click.option("--name", default="bench-list", show_default=True, help="Name of the cluster.")
def command(*, others: int, name: str) -> int:
    """Measure GET /api/containers."""
    local.down(name)
    cluster = local.up(name, node=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            alone, beside = asyncio.run(measure(cluster, Path(folder), others))
    finally:
        local.down(name)
    print(f"{OWN} containers, {alone.size} bytes, {REQUESTS} requests, {CONNECTIONS} connections")
    for title, each in (("alone", alone), (f"with {others} of others", beside)):
        print(
            f"{title}: {each.per_processor_second:.0f} requests per second of processor time"
            f" (target {TARGET}), {each.per_second:.0f} per second,"
            f" {statistics.median(each.times) * 1000:.2f} ms median,"
            f" {each.times[len(each.times) * 99 // 100] * 1000:.2f} ms p99"
        )
    part = beside.per_processor_second / alone.per_processor_second
    print(f"{part:.2f} of the rate with the containers of others (target {TENTH})")
    return int(beside.per_processor_second < TARGET or part < TENTH)


async def measure(
    cluster: local.Cluster, folder: Path, others: int
) -> tuple[Measurement, Measurement]:
    """Return the results without and with the Containers of other organizations."""
    Installation(cluster, folder).prepare()
    settings = write_settings(cluster, folder)
    config = KubeConfig.from_file(cluster.kubeconfig)
    async with KubeClient(config, field_manager="bench", user_agent="bench") as client:
        await create_all(client, organization("acme"))
        await create_all(client, containers("acme", OWN))
        key = await create_key(ApiSettings.read(settings), "acme", ADMIN, "bench", None)
        alone = await asyncio.to_thread(one_run, settings, key)
        for first in range(0, others, PER_ORGANIZATION):
            slug = f"other-{first // PER_ORGANIZATION}"
            await create_all(client, organization(slug))
            await create_all(client, containers(slug, min(PER_ORGANIZATION, others - first)))
        return alone, await asyncio.to_thread(one_run, settings, key)


def write_settings(cluster: local.Cluster, folder: Path) -> Path:
    """Write the settings of a facade without a rate limit for admin keys, and create its ledger."""
    settings = {
        "kubeconfig": str(cluster.kubeconfig),
        "listen": {"port": 0},
        "stop": {"drainSeconds": 0},
        "ledger": {"path": "ledger.db", "keyMaterial": "keys.json"},
        "sources": {"kind": "git", "base": str(folder / "repositories")},
    }
    path = folder / "api.yml"
    path.write_text(yaml.safe_dump(settings))
    cluster.kubectl("create", "namespace", SYSTEM)
    publish(cluster, DOMAIN)
    run_command("admin-key", "init", "--config", str(path))
    return path


def organization(slug: str) -> Iterator[tuple[KindRef, dict[str, Any]]]:
    """Yield an Organization and its namespace."""
    yield NAMESPACE, {"metadata": {"name": f"org-{slug}"}}
    spec = {
        "namespace": f"org-{slug}",
        "members": [{"user": ADMIN, "role": "Admin"}],
        "billing": {"containerSubscription": True},
    }
    yield of(Organization), manifest("Organization", slug, spec)


def containers(slug: str, count: int, first: int = 0) -> Iterator[tuple[KindRef, dict[str, Any]]]:
    """Yield Containers as users have them: with variables, secrets' names and a digest."""
    for number in range(first, first + count):
        spec = {
            "repo": f"{slug}/web-{number}",
            "tag": "v1.0.0",
            "variables": [{"name": "GREETING", "value": "hello"}, {"name": "MODE", "value": "x"}],
        }
        yield of(Container), manifest("Container", f"web-{number}", spec, f"org-{slug}")


def one_run(settings: Path, key: str) -> Measurement:
    """Start a facade and send the requests to it."""
    with start_facade(settings) as facade:
        host, port = facade.base.removeprefix("http://").split(":")
        asyncio.run(send_requests(host, int(port), key, WARM_UP))
        before, begin = usage(facade.process.pid).processor, time.perf_counter()
        times, size = asyncio.run(send_requests(host, int(port), key, REQUESTS))
        elapsed = time.perf_counter() - begin
        used = usage(facade.process.pid).processor - before
    return Measurement(REQUESTS / used, REQUESTS / elapsed, sorted(times), size)


async def send_requests(host: str, port: int, key: str, count: int) -> tuple[list[float], int]:
    """Send requests over several connections; return each latency, and a response's size."""
    times: list[float] = []
    each = count // CONNECTIONS
    clients = (one_connection(host, port, key, each, times) for _ in range(CONNECTIONS))
    return times, (await asyncio.gather(*clients))[0]


async def one_connection(host: str, port: int, key: str, count: int, times: list[float]) -> int:
    """Send requests sequentially over one connection."""
    reader, writer = await asyncio.open_connection(host, port)
    request = (
        f"GET /api/containers HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n"
    ).encode()
    size = 0
    for _ in range(count):
        begin = time.perf_counter()
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if not head.startswith("http/1.1 200"):
            raise RuntimeError(head)
        size = int(head.split("content-length: ")[1].split("\r\n")[0])
        body = await reader.readexactly(size)
        times.append(time.perf_counter() - begin)
        if body.count(b'"repo"') != OWN:
            raise RuntimeError(body.decode())
    writer.close()
    return size


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
