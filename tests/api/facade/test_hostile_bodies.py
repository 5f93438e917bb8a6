"""The largest body of every operation, in the shapes that cost most, and what others notice of it.

The operations are those of the API's document, so that a new one cannot be forgotten. While a
body is served by a real facade, another client's requests are timed.
"""

import asyncio
import hashlib
import hmac
import http.client
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from cloister_api.http.bodies import MAX_BODY, MAX_REPORT
from cloister_api.openapi.document import operations
from cloister_api.routes.platform import RELEASES_PATH
from cloister_api.usage.events import MAX_EVENTS
from cloister_api.usage.ingest import PATH as REPORT_PATH
from cloister_clients.clock import utc_now
from tests.api.facade.test_serving import port_of
from tests.api.facade.test_usage_reports import Reporter
from tests.support.builders.hostile_json import hostile_json
from tests.support.builders.usage import event, sign
from tests.support.clients.openapi_check import described
from tests.support.programs.facade import WEBHOOK_SECRET, Facade, FacadeInstallation
from tests.support.programs.facade_enclaves import enclave_with_token

MIB = 1024 * 1024
MOST_SECONDS = 0.25
"""What a body may add to the wait of another client; the slowest adds a fifth of it."""
MOST_MEMORY = 200 * MIB
ATTEMPTS = 3
TAKING_BODIES = sorted(
    (method.upper(), path)
    for path, method, operation in operations(described())
    if "requestBody" in operation
)
"""Every operation that takes a body, whoever may call it."""
WITH_TOKEN = {"/api/shim/cert"}
"""Paths for the token of an enclave."""
Headers = Mapping[str, str]
Sign = Callable[[bytes], Headers]
"""Returns the headers of a request with a body, with which it is read."""


@dataclass
class Cost:
    """What one body cost."""

    wait: float
    """Longest wait of another client meanwhile, in seconds."""
    cpu: float
    """CPU time of the facade meanwhile, in seconds."""

    @property
    def seconds(self) -> float:
        """What the facade took from others.

        On a busy machine a wait is mostly that for a processor, and CPU time of background work is
        nobody's wait: what is wrong with the facade shows in both.
        """
        return min(self.wait, self.cpu)


def cpu_of(facade: Facade) -> float:
    """Return the CPU time of a facade, in seconds."""
    fields = Path(f"/proc/{facade.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(facade: Facade, field: str) -> int:
    """Return a figure of the memory of a facade, in bytes."""
    lines = Path(f"/proc/{facade.process.pid}/status").read_text().splitlines()
    (found,) = (line.split() for line in lines if line.startswith(f"{field}:"))
    return int(found[1]) * 1024


def forget_peak(facade: Facade) -> None:
    """Reset the peak of the memory."""
    Path(f"/proc/{facade.process.pid}/clear_refs").write_text("5")


async def other_client(facade: Facade, until: "asyncio.Task[int]") -> float:
    """Send requests one after the other until a task ends, and return the longest wait."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(facade))
    longest = 0.0
    while True:
        begun = loop.time()
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: facade.test\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-le"))
        await reader.readexactly(int(size.partition(b":")[2]))
        longest = max(longest, loop.time() - begun)
        if until.done():
            writer.close()
            return longest


def send(facade: Facade, method: str, path: str, body: bytes, headers: Headers) -> int:
    """Send a request, and return the status of the response."""
    connection = http.client.HTTPConnection("127.0.0.1", port_of(facade), timeout=60)
    try:
        connection.request(method, path, body, {"content-type": "application/json", **headers})
        response = connection.getresponse()
        assert len(response.read()) < MIB
        return response.status
    finally:
        connection.close()


async def cost_of(facade: Facade, method: str, path: str, body: bytes, sign: Sign) -> Cost:
    """Return what a body costs: the least of some attempts, if the first ones cost too much."""
    least = Cost(60, 60)
    for _ in range(ATTEMPTS):
        before = cpu_of(facade)
        task = asyncio.create_task(asyncio.to_thread(send, facade, method, path, body, sign(body)))
        wait = await other_client(facade, task)
        assert await task not in {500, 502}
        least = min(least, Cost(wait, cpu_of(facade) - before), key=lambda each: each.seconds)
        if least.seconds < MOST_SECONDS:
            break
    return least


def reports(nonce: str, size: int) -> Iterator[tuple[str, bytes]]:
    """Yield reports of usage whose events cost much."""
    now = utc_now()
    filling = "x" * (size // MAX_EVENTS - 500)
    wide: dict[str, list[list[int]]] = {str(number): [[]] for number in range(400)}
    for name, more in (
        ("large events", {"attributes": {"model": "north", "text": filling}}),
        ("wide events", {"attributes": wide}),
        ("events that are late", {"request_id": filling[:200]}),
        ("meters", {"meters": [{"name": f"m{n}", "quantity": 1} for n in range(32)]}),
    ):
        at = now - timedelta(days=100 if "late" in name else 0)
        events = [event(f"{nonce}-{name}-{number}", at, **more) for number in range(MAX_EVENTS)]
        yield name, json.dumps({"delivery_id": nonce, "events": events}).encode()[:size]


async def signer(path: str, world: FacadeInstallation) -> Sign:
    """Return what signs the requests to a path."""
    if path == REPORT_PATH:
        reporter = Reporter(world)
        return lambda body: sign(
            reporter.secret,
            hashlib.sha256(body).hexdigest(),
            body,
            utc_now(),
            reporter.name,
        )
    if path == RELEASES_PATH:
        return lambda body: {
            "x-github-event": "release",
            "x-hub-signature-256": "sha256="
            + hmac.new(WEBHOOK_SECRET.encode(), body, hashlib.sha256).hexdigest(),
        }
    token = await enclave_with_token(world, "web") if path in WITH_TOKEN else world.key
    return lambda _: {"authorization": f"Bearer {token}"}


@pytest.mark.attack("costly-body")
@pytest.mark.parametrize(("method", "path"), TAKING_BODIES)
async def test_the_largest_bodies_let_others_be_served(
    facade: Facade, world: FacadeInstallation, method: str, path: str
) -> None:
    size = MAX_REPORT if path == REPORT_PATH else MAX_BODY
    bodies = hostile_json(size)
    if path == REPORT_PATH:
        bodies |= dict(reports("d", size))
    place = path.replace("{", "").replace("}", "")
    signed = await signer(path, world)
    forget_peak(facade)
    before = memory_of(facade, "VmRSS")
    costs = {
        name: await cost_of(facade, method, place, body, signed) for name, body in bodies.items()
    }
    assert {name: each for name, each in costs.items() if each.seconds >= MOST_SECONDS} == {}
    assert memory_of(facade, "VmHWM") - before < MOST_MEMORY
