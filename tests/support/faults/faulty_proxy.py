"""A proxy in front of the real API server that does what networks and servers do wrong.

It runs in a thread of its own and speaks plain HTTP on the loopback to whoever is tested, and
HTTPS with the administrator's certificate to the server. Each program gets a door, a port of its
own, so that the audit says who wrote what. What goes wrong is said by
`tests.support.faults.fault_kinds`.
"""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from cloister_clients.kube import KubeConfig
from tests.support.faults.fault_kinds import PASS, ApiRequest, Fault, Injection, Loss

__all__ = ["Door", "FaultyProxy", "Write", "faulty_proxy"]

T = TypeVar("T")

_NOT_PASSED = {"host", "accept-encoding", "connection", "content-length", "transfer-encoding"}
_LINE = 1 << 24
"""Longest line of a watch, in bytes."""
_TURNS = 10
"""Turns of the loop after its end: more than a TLS connection takes until its socket is closed."""


@dataclass(frozen=True)
class Write:
    """A request that would change something, and what became of it."""

    request: ApiRequest
    """The request."""
    status: int
    """What the server answered; 0 = it never got there."""
    at: float
    """When it was answered, by the monotonic clock."""


@dataclass(frozen=True)
class Door:
    """A port for one program."""

    name: str
    """Who comes through it."""
    port: int
    """The port on the loopback."""
    kubeconfig: Path
    """Configuration for that program."""


@dataclass
class FaultyProxy:
    """A running proxy."""

    upstream: KubeConfig
    """The real server."""
    folder: Path
    """Where kubeconfigs are written."""
    faults: Sequence[Fault] = ()
    """What goes wrong now; may be replaced at any time."""
    writes: list[Write] = field(default_factory=list)
    """Every write, in the order of the answers."""
    doors: dict[int, Door] = field(default_factory=dict)
    """Port -> door."""
    _count: int = 0
    _loop: asyncio.AbstractEventLoop | None = None
    _runner: web.AppRunner | None = None
    _session: aiohttp.ClientSession | None = None

    def door(self, name: str) -> Door:
        """Open a door for a program."""
        return self._call(self._open_door(name))

    def written(self, about: str = "", *, door: str = "") -> list[Write]:
        """Return the writes that the server accepted, of objects whose name begins like that."""
        return [
            each
            for each in tuple(self.writes)
            if each.request.name.startswith(about)
            and door in ("", each.request.door)
            and 0 < each.status < 400
        ]

    def _call(self, what: Coroutine[Any, Any, T]) -> T:
        """Run something in the proxy's thread."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    async def _open_door(self, name: str) -> Door:
        assert self._runner is not None
        site = web.TCPSite(self._runner, "127.0.0.1", 0, reuse_address=True)
        await site.start()
        known = set(self.doors)
        port = next(int(each[1]) for each in self._runner.addresses if int(each[1]) not in known)
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(_kubeconfig(f"http://127.0.0.1:{port}")))
        self.doors[port] = Door(name, port, path)
        return self.doors[port]

    async def _start(self) -> None:
        """Begin to serve; no door is open yet."""
        self._loop = asyncio.get_running_loop()
        connector = aiohttp.TCPConnector(limit=0, ssl=self.upstream.tls or True)
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            read_bufsize=_LINE,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        )
        app = web.Application(client_max_size=_LINE)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=1
        )
        await self._runner.setup()

    async def _stop(self) -> None:
        """End all connections."""
        assert self._runner is not None
        assert self._session is not None
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, incoming: web.Request) -> web.StreamResponse:
        """Pass one request on, as the faults allow."""
        assert incoming.transport is not None
        port = int(incoming.transport.get_extra_info("sockname")[1])
        self._count += 1
        request = ApiRequest.read(
            self._count, self.doors[port].name, incoming.method, incoming.path,
            incoming.query_string, incoming.headers.get("Accept", ""), await incoming.read(),
        )  # fmt: skip
        injection = next(
            (each for fault in self.faults if (each := fault.inject(request)) != PASS), PASS
        )
        if injection.delay:
            await _late(injection.delay)
        if injection.loss == Loss.REQUEST:
            return self._cut(incoming)
        if injection.status:
            self._note(request, 0)
            return _refusal(injection)
        try:
            for fault in self.faults:
                await fault.before(request)
            if request.verb == "watch":
                return await self._watch(incoming, request, injection)
            # Whoever asked may be gone; what was sent arrives nevertheless.
            return await asyncio.shield(self._pass(incoming, request, injection))
        except (aiohttp.ClientError, ConnectionError):
            return self._cut(incoming)

    async def _pass(
        self, incoming: web.Request, request: ApiRequest, injection: Injection
    ) -> web.StreamResponse:
        """Pass a request on and its answer back."""
        async with self._ask_server(incoming, request, injection) as answer:
            body = await answer.read()
        self._note(request, answer.status)
        try:
            for fault in self.faults:
                await fault.after(request, answer.status)
        except ConnectionError:
            return self._cut(incoming)
        if injection.loss == Loss.ANSWER:
            return self._cut(incoming)
        headers = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
        return web.Response(status=answer.status, body=body, headers=headers)

    async def _watch(
        self, incoming: web.Request, request: ApiRequest, injection: Injection
    ) -> web.StreamResponse:
        """Pass the events of a watch on, one by one."""
        async with self._ask_server(incoming, request, injection) as answer:
            response = web.StreamResponse(status=answer.status)
            response.content_type = "application/json"
            await response.prepare(incoming)
            pending: asyncio.Queue[Awaitable[bytes] | None] = asyncio.Queue()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read_events(request, answer, pending, tasks.create_task))
                while (line := await pending.get()) is not None:
                    await response.write(await line)
            return response

    async def _read_events(
        self,
        request: ApiRequest,
        answer: aiohttp.ClientResponse,
        pending: "asyncio.Queue[Awaitable[bytes] | None]",
        start: Callable[[Coroutine[Any, Any, bytes]], Awaitable[bytes]],
    ) -> None:
        """Read events as they come, so that a held one does not hide the next from the faults."""
        try:
            async for line in answer.content:
                pending.put_nowait(start(self._judge_event(request, line)))
        except (aiohttp.ClientError, ConnectionError):
            pass
        finally:
            pending.put_nowait(None)

    async def _judge_event(self, request: ApiRequest, line: bytes) -> bytes:
        """Return the line that is delivered in the place of one; empty = none."""
        faults = self.faults
        if not faults or not line.strip():
            return line
        event: dict[str, Any] = json.loads(line)
        for fault in faults:
            if not await fault.event(request, event):
                return b""
        return json.dumps(event).encode() + b"\n"

    @contextlib.asynccontextmanager
    async def _ask_server(
        self, incoming: web.Request, request: ApiRequest, injection: Injection
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request to the real server."""
        assert self._session is not None
        url = URL(self.upstream.server + incoming.raw_path, encoded=True)
        if injection.version and "continue" not in url.query:
            url = url.update_query(
                {"resourceVersion": injection.version, "resourceVersionMatch": "Exact"}
            )
        headers = {
            name: value for name, value in incoming.headers.items()
            if name.lower() not in _NOT_PASSED
        }  # fmt: skip
        headers["Accept-Encoding"] = "identity"
        async with self._session.request(
            incoming.method, url, headers=headers, data=request.body or None
        ) as answer:
            yield answer

    def _note(self, request: ApiRequest, status: int) -> None:
        """Write a write down."""
        if request.writes:
            self.writes.append(Write(request, status, time.monotonic()))

    @staticmethod
    def _cut(incoming: web.Request) -> web.StreamResponse:
        """End the connection without an answer."""
        if incoming.transport is not None:
            incoming.transport.abort()
        return web.Response(status=500)


async def _late(seconds: float) -> None:
    """Be slow: the delay is the fault that is tested."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


_PASSED_BACK = ("Content-Type", "Retry-After", "Warning")


def _refusal(injection: Injection) -> web.Response:
    """Return as the API server refuses."""
    headers = {"Retry-After": "1"} if injection.status == 429 else {}
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": injection.reason,
        "code": injection.status,
        "message": f"{injection.reason}: made up by a test",
    }
    return web.json_response(body, status=injection.status, headers=headers)


def _kubeconfig(server: str) -> dict[str, Any]:
    """Write a kubeconfig without a user: the proxy has the certificate."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "faulty",
        "contexts": [{"name": "faulty", "context": {"cluster": "faulty"}}],
        "clusters": [{"name": "faulty", "cluster": {"server": server}}],
    }


async def _finish(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel what still runs, and let the loop do what is due."""
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(_TURNS):
        await asyncio.sleep(0)


@contextlib.contextmanager
def faulty_proxy(kubeconfig: Path, folder: Path) -> Iterator[FaultyProxy]:
    """Run a proxy in front of the server of a kubeconfig until the block ends."""
    proxy = FaultyProxy(KubeConfig.from_file(kubeconfig), folder)
    started, loop = threading.Event(), asyncio.new_event_loop()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(proxy._start())
        started.set()
        loop.run_forever()
        # What was closed and cancelled takes a turn or two until its sockets are.
        loop.run_until_complete(_finish(asyncio.all_tasks(loop)))

    thread = threading.Thread(target=serve, name="faulty api", daemon=True)
    thread.start()
    try:
        assert started.wait(30)
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(proxy._stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
