"""What tracing costs: ``python -m dev.bench tracing``.

Off: modules and memory that it must not take. On: seconds and memory of its libraries at the start;
then processor time of a request to the facade, and of the spans of one reconcile, each as the ratio
to the same without tracing. The collector is a stand-in in a process of its own. A request is the
least that there is: guard, framework and refusal, no service behind them.
"""

import asyncio
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Final

import httpx

from cloister_clients.kube.transport import resource_of
from cloister_clients.tracing.settings import TracingSettings
from cloister_clients.tracing.spans import SpanKind, is_on, span, traced
from tests.support.programs.routes_only import bare_app, bare_client
from tests.support.stand_ins.otlp_collector import collector

REQUESTS: Final = 1_000
PASSES: Final = 5_000
WRITES: Final = 3
"""Requests to the API server within a reconcile."""
MOST: Final = 1.5
"""Bound of the ratio of a request."""
START: Final = """
import resource, sys, time
import cloister_operator.commands.run

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1024**2

before, began = resident(), time.process_time()
if sys.argv[1] == "on":
    import cloister_clients.tracing.open_telemetry
print(time.process_time() - began, resident() - before)
print(sum(name.split(".")[0] == "opentelemetry" for name in sys.modules))
"""


def start(mode: str) -> tuple[float, float, int]:
    """Return seconds of processor time, MiB and modules that an operator's start pays."""
    done = subprocess.run(
        [sys.executable, "-c", START, mode], capture_output=True, text=True, check=True
    )
    seconds, memory, modules = done.stdout.split()
    return float(seconds), float(memory), int(modules)


async def requests() -> float:
    """Return the processor time of a request to the facade, in microseconds."""
    async with bare_client(bare_app()) as client:
        return await cost(lambda: get(client), REQUESTS)


async def get(client: httpx.AsyncClient) -> None:
    """Send a request that the services refuse."""
    await client.get("/api/deployments")


async def passes() -> float:
    """Return the processor time of the spans of one reconcile, in microseconds."""
    return await cost(reconcile, PASSES)


async def reconcile() -> None:
    """Do what a reconcile does for its spans."""
    if not is_on():
        return
    path = "/apis/cloister.dev/v1alpha1/namespaces/org-acme/containers/web/status"
    attributes = {"http.request.method": "PATCH", "url.path": path}
    with span("reconcile Container", attributes={"cloister.object": "Container org-acme/web"}):
        for _ in range(WRITES):
            with span(
                f"PATCH {resource_of(path)}", SpanKind.CLIENT, inner=True, attributes=attributes
            ):
                pass


async def cost(work: Callable[[], Awaitable[None]], times: int) -> float:
    """Return the processor time of work in microseconds, of all threads; the least of three."""
    found = []
    for _ in range(3):
        began = time.process_time()
        for _ in range(times):
            await work()
        found.append((time.process_time() - began) / times * 1e6)
    return min(found)


def collect(pipe: Connection) -> None:
    """Run the collector until the pipe says so; the body of a process."""
    with collector() as found:
        pipe.send(found.endpoint)
        pipe.recv()


def main() -> int:
    """Print what tracing costs; return 1 when a request costs more than its bound."""
    off, on = start("off"), start("on")
    print(f"off: {off[2]} modules, {off[1]:.1f} MiB")
    print(f"on, at the start: {on[0]:.2f} s, {on[1]:.1f} MiB, {on[2]} modules")
    without = asyncio.run(requests()), asyncio.run(passes())
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=collect, args=(theirs,))
    process.start()
    try:
        settings = TracingSettings(endpoint=ours.recv())
        with traced(settings, "api"):
            recorded = asyncio.run(requests()), asyncio.run(passes())
        with traced(settings.model_copy(update={"sample_ratio": 0.01}), "api"):
            sampled = asyncio.run(requests()), asyncio.run(passes())
    finally:
        ours.send("end")
        process.join(30)
    for name, place in (("a request", 0), ("the spans of a reconcile", 1)):
        print(
            f"{name}: {without[place]:.1f} µs off, {recorded[place]:.0f} µs on, "
            f"{sampled[place]:.0f} µs with sampleRatio 0.01"
        )
    ratio = recorded[0] / without[0]
    print(f"a request: x{ratio:.2f} with all recorded, x{sampled[0] / without[0]:.2f} with 1 %")
    return int(ratio > MOST)
