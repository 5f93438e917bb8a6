"""A proxy in front of the real API server that injects faults of networks and servers.

It runs in a thread of its own and uses plain HTTP on the loopback to the tested program, and
HTTPS with the administrator's certificate to the server. Each program gets a port of its
own, so that writes can be attributed. The kinds of faults are in
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
from cloister_clients.kube.transport import ConnectionSockets
from tests.support.faults.fault_kinds import PASS, ApiRequest, Fault, Injection, Loss

__all__ = ["FaultyProxy", "ProxyPort", "Write", "faulty_proxy"]

T = TypeVar("T")

_NOT_PASSED = {"host", "accept-encoding", "connection", "content-length", "transfer-encoding"}
_LINE = 1 << 24
"""Longest line of a watch, in bytes."""
_TURNS = 10
"""Iterations of the loop after its end: more than a TLS connection needs to close its socket."""


@dataclass(frozen=True)
class Write:
    """A write request, and its outcome."""

    request: ApiRequest
    """The request."""
    status: int
    """Status of the server's response; 0 = it never reached the server."""
    at: float
    """Time of the response, by the monotonic clock."""


@dataclass(frozen=True)
class ProxyPort:
    """A proxy port for one program."""

    name: str
    """Name of the program."""
    port: int
    """The port on the loopback."""
    kubeconfig: Path
    """Kubeconfig for that program."""


@dataclass
class FaultyProxy:
    """A running proxy."""

    upstream: KubeConfig
    """Configuration of the real server."""
    folder: Path
    """Where kubeconfigs are written."""
    user: dict[str, str] = field(default_factory=dict)
    """User of the kubeconfigs, such as the account that the programs act as."""
    faults: Sequence[Fault] = ()
    """The active faults; may be replaced at any time."""
    writes: list[Write] = field(default_factory=list)
    """Every write, in the order of the responses."""
    ports: dict[int, ProxyPort] = field(default_factory=dict)
    """Port number -> proxy port."""
    _count: int = 0
    _loop: asyncio.AbstractEventLoop | None = None
    _runner: web.AppRunner | None = None
    _session: aiohttp.ClientSession | None = None
    _sockets: ConnectionSockets = field(default_factory=ConnectionSockets)

    def open_port(self, name: str) -> ProxyPort:
        """Open a port for a program."""
        return self._call(self._open_port(name))

    def written(self, about: str = "", *, client: str = "") -> list[Write]:
        """Return the accepted writes of objects whose name has a prefix."""
        return [
            each
            for each in tuple(self.writes)
            if each.request.name.startswith(about)
            and client in ("", each.request.client)
            and 0 < each.status < 400
        ]

    def _call(self, what: Coroutine[Any, Any, T]) -> T:
        """Run something in the proxy's thread."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    async def _open_port(self, name: str) -> ProxyPort:
        assert self._runner is not None
        site = web.TCPSite(self._runner, "127.0.0.1", 0, reuse_address=True)
        await site.start()
        known = set(self.ports)
        port = next(int(each[1]) for each in self._runner.addresses if int(each[1]) not in known)
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(_kubeconfig(f"http://127.0.0.1:{port}", self.user)))
        self.ports[port] = ProxyPort(name, port, path)
        return self.ports[port]

    async def _start(self) -> None:
        """Start serving; no port is open yet."""
        self._loop = asyncio.get_running_loop()
        connector = aiohttp.TCPConnector(
            limit=0, ssl=self.upstream.tls or True, socket_factory=self._sockets.create
        )
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
        """Close all connections."""
        assert self._runner is not None
        assert self._session is not None
        await self._runner.cleanup()
        await self._session.close()
        await self._sockets.hang_up()

    async def _handle(self, incoming: web.Request) -> web.StreamResponse:
        """Handle one request, as the faults prescribe."""
        assert incoming.transport is not None
        port = int(incoming.transport.get_extra_info("sockname")[1])
        self._count += 1
        request = ApiRequest.read(
            self._count, self.ports[port].name, incoming.method, incoming.path,
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
            # Even if the client has disconnected, its request must still reach the server.
            return await asyncio.shield(self._pass(incoming, request, injection))
        except (aiohttp.ClientError, ConnectionError):
            return self._cut(incoming)

    async def _pass(
        self, incoming: web.Request, request: ApiRequest, injection: Injection
    ) -> web.StreamResponse:
        """Forward a request, and its response back."""
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
        """Forward the events of a watch, one by one."""
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
        """Read events as they arrive, so that a held one does not hide the next from the faults."""
        try:
            async for line in answer.content:
                pending.put_nowait(start(self._judge_event(request, line)))
        except (aiohttp.ClientError, ConnectionError):
            pass
        finally:
            pending.put_nowait(None)

    async def _judge_event(self, request: ApiRequest, line: bytes) -> bytes:
        """Return the line to deliver for an event; empty = none."""
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
        """Record a write."""
        if request.writes:
            self.writes.append(Write(request, status, time.monotonic()))

    @staticmethod
    def _cut(incoming: web.Request) -> web.StreamResponse:
        """Close the connection without a response."""
        if incoming.transport is not None:
            incoming.transport.abort()
        return web.Response(status=500)


async def _late(seconds: float) -> None:
    """Delay a request: the delay is the tested fault."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


_PASSED_BACK = ("Content-Type", "Retry-After", "Warning")


def _refusal(injection: Injection) -> web.Response:
    """Build a refusal as the API server does."""
    headers = {"Retry-After": "1"} if injection.status == 429 else {}
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": injection.reason,
        "code": injection.status,
        "message": f"{injection.reason}: injected by a test",
    }
    return web.json_response(body, status=injection.status, headers=headers)


def _kubeconfig(server: str, user: dict[str, str]) -> dict[str, Any]:
    """Build a kubeconfig without a certificate: the proxy has it."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "faulty",
        "contexts": [{"name": "faulty", "context": {"cluster": "faulty", "user": "faulty"}}],
        "users": [{"name": "faulty", "user": user}],
        "clusters": [{"name": "faulty", "cluster": {"server": server}}],
    }


async def _finish(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel the remaining tasks, and let the loop finish due callbacks."""
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
        # Sockets of closed and cancelled connections need an iteration or two to close.
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
