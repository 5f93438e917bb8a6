"""Clients that hold requests back on purpose: in headers, in bodies, in what they do not read.

All by sockets at a real facade, while honest callers ask it.
"""

import asyncio
import json
import re
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cloister_api.http.bodies import MAX_REPORT
from cloister_api.http.connections import MAX_HEADERS
from cloister_api.ledger.keys.key_material import REGULAR_PREFIX, generate
from cloister_api.routes.enclaves import CHECK_PATH
from cloister_api.usage.ingest import PATH
from cloister_clients.clock import utc_now
from tests.api.facade.test_serving import changed, port_of
from tests.api.facade.test_usage_reports import Reporter
from tests.support.builders.usage import event, sign
from tests.support.cluster.clusters import unique
from tests.support.programs.facade import Facade, FacadeInstallation, start_facade
from tests.support.waiting import until

MIB = 1024 * 1024
ATTACKERS = 500
CONNECTIONS = 600
DEADLINE = 8.0
"""Seconds that the facades of these tests wait for headers and bodies."""
MARGIN = 7.0
"""Seconds that an attack may add to an honest call: fewer than the facade waits for attackers, so
that a call which waits until they are gone takes longer. How many it does add is measured by
hand: two seconds on a machine that had eight times the work that it can do."""


@pytest.fixture(autouse=True)
def sockets() -> None:
    """Allow this process as many sockets as the attacks need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))


@pytest.fixture(scope="module")
def impatient(facade_settings: Path) -> Iterator[Facade]:
    """Run a facade that waits a short time, and has few connections."""
    document = yaml.safe_load(facade_settings.read_text())
    limits: dict[str, float | None] = {
        "headerSeconds": DEADLINE,
        "bodySeconds": DEADLINE,
        "connections": CONNECTIONS,
    }
    # The honest calls follow one another as fast as they can.
    limits["organizationWritesPerSecond"] = None
    path = facade_settings.with_name("impatient.yml")
    path.write_text(yaml.safe_dump({**document, "limits": limits}))
    with start_facade(path) as facade:
        yield facade


@pytest.fixture
async def reporter(impatient: Facade, world: FacadeInstallation) -> Reporter:
    """Return a reporter of an organization that the facade knows."""
    await world.await_cached_by(impatient)
    return Reporter(world)


def rss(facade: Facade) -> int:
    """Return the memory of a facade in bytes."""
    status = Path(f"/proc/{facade.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def files_of(facade: Facade) -> int:
    """Return how many files and sockets a facade has open."""
    return len(list(Path(f"/proc/{facade.process.pid}/fd").iterdir()))


class Attack:
    """Connections that each send something and wait for the end."""

    def __init__(self, facade: Facade, sent: Sequence[bytes]) -> None:
        self._facade = facade
        self._sent = sent
        self.answers: list[bytes] = []

    async def _one(self, sent: bytes) -> None:
        loop = asyncio.get_running_loop()
        answer = bytearray()
        with socket.socket() as client:
            client.setblocking(False)
            try:
                await loop.sock_connect(client, ("127.0.0.1", port_of(self._facade)))
                await loop.sock_sendall(client, sent)
                while piece := await loop.sock_recv(client, 65_536):
                    answer += piece
            except ConnectionError:
                pass  # The facade has ended it.
            finally:
                self.answers.append(bytes(answer))

    async def _all(self) -> None:
        async with asyncio.timeout(DEADLINE * 6):
            await asyncio.gather(*map(self._one, self._sent))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run it while the block runs, and until the facade has ended all connections.

        It has a thread and an event loop of its own, so that it does not delay honest callers
        here.
        """
        work = asyncio.create_task(asyncio.to_thread(asyncio.run, self._all()))
        yield
        await work

    @property
    def over(self) -> bool:
        """Whether all connections were ended."""
        return len(self.answers) == len(self._sent)

    def statuses(self) -> set[int]:
        """Return the statuses of the answers; 0 = ended without one."""
        return {int(answer.split(b" ", 2)[1]) if answer else 0 for answer in self.answers}


async def honest_calls(facade: Facade, world: FacadeInstallation, reporter: Reporter) -> float:
    """Make an honest call of each kind, and return the seconds that the slowest took."""
    slowest = 0.0
    loop = asyncio.get_running_loop()
    async with facade.client(world.key) as admin, facade.client() as client:
        calls: tuple[tuple[Callable[[], Awaitable[httpx.Response]], int], ...] = (
            (lambda: admin.get("/api/containers"), 200),
            (lambda: admin.post("/api/containers/validate-name", json={"name": "free"}), 200),
            (lambda: reporter.send(client, [event(unique("e"), utc_now())]), 200),
            (lambda: client.post(CHECK_PATH, json={"api_key": generate(REGULAR_PREFIX)}), 401),
            (lambda: client.get("/healthz"), 200),
        )
        for call, status in calls:
            begun = loop.time()
            answer = await call()
            slowest = max(slowest, loop.time() - begun)
            assert answer.status_code == status, answer.text
    return slowest


async def watched(
    facade: Facade, world: FacadeInstallation, reporter: Reporter, attack: Attack
) -> tuple[float, int]:
    """Return what an attack adds to the slowest honest call, in seconds, and to the memory."""
    before, alone = rss(facade), await honest_calls(facade, world, reporter)
    slowest, most = 0.0, 0
    async with attack.running():
        while not attack.over:
            slowest = max(slowest, await honest_calls(facade, world, reporter))
            most = max(most, rss(facade))
    return slowest - alone, most - before


def head(method: str, path: str, **headers: str) -> bytes:
    """Return request line and headers."""
    lines = [f"{method} {path} HTTP/1.1", "host: facade.test"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


HELD_BACK = b" " * (MAX_REPORT - 1)
JSON = {"content_type": "application/json", "content_length": str(MAX_REPORT)}


@pytest.mark.spec("20.23")
async def test_bodies_without_their_last_byte_fill_no_memory_and_stop_nobody(
    impatient: Facade, world: FacadeInstallation, reporter: Reporter
) -> None:
    signed = sign(reporter.secret, "d", HELD_BACK, utc_now(), reporter.name)
    report = head("POST", PATH, **{**JSON, **signed}) + HELD_BACK
    attack = Attack(impatient, [report] * ATTACKERS)
    seconds, memory = await watched(impatient, world, reporter, attack)
    assert memory < 128 * MIB
    assert seconds < MARGIN
    assert attack.statuses() <= {0, 408, 503}


@pytest.mark.spec("20.23")
async def test_who_cannot_be_right_is_refused_before_the_body(
    impatient: Facade, world: FacadeInstallation, reporter: Reporter
) -> None:
    signed = sign(reporter.secret, "d", HELD_BACK, utc_now(), reporter.name)
    old = sign(reporter.secret, "d", HELD_BACK, utc_now().replace(year=2020), reporter.name)
    token = f"{world.namespace}/web/{'a' * 43}"
    strangers: dict[str, list[dict[str, str]]] = {
        PATH: [{}, old, {**signed, "x-cloister-reporter-id": "nobody"},
               {**signed, "x-cloister-signature": "no"}],
        "/api/shim/cert": [{}, {"authorization": f"Bearer {token}"}],
        "/api/webhooks/releases": [{}, {"x-hub-signature-256": "sha256=no"}],
        "/api/containers": [{}, {"authorization": f"Bearer {generate()}"}],
    }  # fmt: skip
    heads = [
        head("POST", path, content_type="application/json", content_length="1000", **headers)
        for path, kinds in strangers.items()
        for headers in kinds
    ]
    attack = Attack(impatient, heads)
    async with attack.running():
        pass
    assert attack.statuses() == {401}
    for answer in attack.answers:
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "UNAUTHORIZED"


@pytest.mark.spec("20.23")
async def test_headers_that_do_not_end_stop_nobody(
    impatient: Facade, world: FacadeInstallation, reporter: Reporter
) -> None:
    kinds = {
        b"": 0,
        head("GET", "/healthz")[:-2]: 408,
        head("GET", "/api/containers", x_one="a" * (MAX_HEADERS + 1)): 431,
        b"GET / HTTP/1.1\r\nx-endless: " + b"a" * (8 * MAX_HEADERS): 431,
        b"nonsense\r\n\r\n": 400,
        head("GET", "/healthz") * 5000: 0,
    }
    attack = Attack(impatient, list(kinds) * (2 * ATTACKERS // len(kinds)))
    seconds, memory = await watched(impatient, world, reporter, attack)
    assert memory < 128 * MIB
    assert seconds < MARGIN
    assert attack.statuses() == {0, *kinds.values()}
    for answer in attack.answers:
        if answer:
            body: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
            assert body.keys() == {"error", "code", "request_id"}


@pytest.mark.spec("20.23")
async def test_clients_that_read_no_response_are_ended(
    impatient: Facade, world: FacadeInstallation, reporter: Reporter
) -> None:
    alone = await honest_calls(impatient, world, reporter)
    before, opened = rss(impatient), files_of(impatient)
    asking = head("GET", "/openapi.json") * 40
    clients = [
        socket.create_connection(("127.0.0.1", port_of(impatient))) for _ in range(ATTACKERS // 5)
    ]
    for client in clients:
        client.sendall(asking)

    async def ended() -> bool:
        assert await honest_calls(impatient, world, reporter) < alone + MARGIN
        assert rss(impatient) - before < 128 * MIB
        return files_of(impatient) < opened + 20

    await until(ended, every=0.2)
    for client in clients:
        client.close()


@pytest.mark.spec("20.23")
async def test_an_organization_with_too_much_in_progress_waits_and_others_do_not(
    world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    limits = {"organizationRequests": 3, "headerSeconds": DEADLINE, "bodySeconds": DEADLINE}
    begun = head(
        "POST",
        "/api/secrets",
        authorization=f"Bearer {world.key}",
        content_type="application/json",
        content_length="100",
    )
    with start_facade(changed(world, "few", limits=limits)) as facade:
        attack = Attack(facade, [begun] * 4)
        async with attack.running(), facade.client(other_world.key) as other:
            while not attack.over:
                assert (await other.get("/api/containers")).status_code == 200
        assert attack.statuses() == {408, 429}
        async with facade.client(world.key) as client:
            assert (await client.get("/api/containers")).status_code == 200
