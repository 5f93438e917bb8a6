"""Machines under virtual time, and the network between them.

A machine is an event loop without selector, thread or clock of its own. The world runs one callback
round of one machine at a time, always of a machine whose next event is the earliest. Connections
are pairs of transports under aiohttp's own client and server protocols, so that parsers,
keep-alive, timeouts and half-closed connections are the real ones.

The event loop's internals that this uses are those of CPython's `asyncio.BaseEventLoop`:
`_ready`, `_scheduled`, `_run_once`, `_selector`, `_process_events`, `_write_to_self`.
"""

import asyncio
import itertools
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import aiohttp
from aiohttp import web
from aiohttp.client_proto import ResponseHandler
from typing_extensions import override

from tests.simulation.choices import Choices

__all__ = ["Deadlock", "Machine", "World"]

EPOCH = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
"""The wall clock at the beginning of each run."""
_RESET_SECONDS = 0.01
"""Until the peers of a killed machine see their connections reset."""
_APART = 1e-9
"""Between two messages of one connection: timers of equal time have no stable order."""
_NEVER = float("inf")

T = TypeVar("T")


class Deadlock(Exception):  # noqa: N818 - it names the finding
    """Nothing is scheduled on any machine: the run would wait forever."""


class World:
    """All machines of a run, and the time that they share."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        """What is left to chance."""
        self.now = 0.0
        """Seconds since the beginning."""
        self.slowest = 0.03
        """Most seconds that a message is on its way."""
        self.numbers = itertools.count()
        """Of tasks and futures; each run begins with 0."""
        self.machines: list[Machine] = []
        """The machines that run."""
        # What a killed process would do when it is collected ("finally" blocks) never happens.
        self._dead: list[object] = []

    def utc(self) -> datetime:
        """Return the wall clock's time."""
        return EPOCH + timedelta(seconds=self.now)

    def stamp(self) -> str:
        """Return the wall clock's time as the API server writes it, in whole seconds."""
        return self.utc().strftime("%Y-%m-%dT%H:%M:%SZ")

    def machine(self, name: str) -> "Machine":
        """Start a machine."""
        made = Machine(self, name)
        self.machines.append(made)
        return made

    def kill(self, machine: "Machine") -> None:
        """End a machine at once; its peers see their connections reset a moment later."""
        self.machines.remove(machine)
        self._dead.append(
            (machine, list(machine._ready), list(machine._scheduled), asyncio.all_tasks(machine))
        )
        machine._ready.clear()
        machine._scheduled.clear()
        machine.dead = True
        for transport in machine.transports:
            peer = transport.peer
            if not peer.machine.dead:
                peer.machine.call_at(self.now + _RESET_SECONDS, peer.reset)

    def step(self) -> None:
        """Run one round of callbacks of the machine whose turn it is.

        Raises
        ------
        Deadlock
            When nothing is scheduled anywhere.
        """
        due = [machine.due() for machine in self.machines]
        earliest = min(due, default=_NEVER)
        if earliest == _NEVER:
            raise Deadlock(f"nothing is scheduled after {self.now:.2f} s")
        self.now = max(self.now, earliest)
        ready = [machine for machine, at in zip(self.machines, due, strict=True) if at <= self.now]
        turn = self.choices.choose(len(ready), "whose turn it is") if len(ready) > 1 else 0
        # As `Machine.running` does, whose context manager takes a tenth of a run here.
        before = events._get_running_loop()
        events._set_running_loop(ready[turn])
        try:
            ready[turn]._run_once()
        finally:
            events._set_running_loop(before)

    def run_until(self, condition: Callable[[], object], *, within: float) -> bool:
        """Run until a condition holds; False when it does not within so many seconds."""
        end = self.now + within
        while not condition():
            if self.now > end:
                return False
            self.step()
        return True

    def close(self) -> None:
        """End all machines in order, for programs that continue afterwards."""
        for machine in self.machines:
            with machine.running():
                tasks = asyncio.all_tasks(machine)
                for task in tasks:
                    task.cancel()
            self.run_until(lambda tasks=tasks: all(t.done() for t in tasks), within=60)  # type: ignore[misc]  # bound now
            machine.close()


class _Task(asyncio.Task[Any]):
    """A task whose hash is a number: sets of tasks have the same order in each run."""

    def __init__(self, number: int, *arguments: Any, **options: Any) -> None:
        self.number = number
        super().__init__(*arguments, **options)

    @override
    def __hash__(self) -> int:
        return self.number


class _Future(asyncio.Future[Any]):
    """A future whose hash is a number."""

    def __init__(self, number: int, **options: Any) -> None:
        self.number = number
        super().__init__(**options)

    @override
    def __hash__(self) -> int:
        return self.number


class _NoSelector:
    """Stands for the selector of a loop: nothing comes from outside, and the world waits."""

    def select(self, timeout: float | None) -> list[Any]:
        return []

    def get_map(self) -> dict[int, Any]:
        return {}

    def close(self) -> None:
        """Nothing is open."""


class Machine(asyncio.BaseEventLoop):
    """A machine with one process: an event loop that the world runs."""

    # Of the base class, whose types are not published.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _run_once: Callable[[], None]

    def __init__(self, world: World, name: str) -> None:
        super().__init__()
        self.world = world
        """The world that it is in."""
        self.name = name
        """Name, for stories."""
        self.dead = False
        """Whether it was killed."""
        self.frozen_until = 0.0
        """Until when it does nothing; its clock continues."""
        self.transports: list[MemoryTransport] = []
        """Its ends of connections."""
        self._selector = _NoSelector()
        self._clock_resolution = _APART
        numbers = self._numbers = world.numbers
        self.set_task_factory(
            lambda loop, coroutine, **o: _Task(next(numbers), coroutine, loop=loop, **o)
        )

    @override
    def time(self) -> float:
        return self.world.now

    @override
    def create_future(self) -> asyncio.Future[Any]:
        return _Future(next(self._numbers), loop=self)

    @override
    def run_in_executor(  # type: ignore[override]  # the base class has an awaitable of its own kind
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run a function in place: another thread would be a choice that nobody records."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        return future

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: no event comes from outside."""

    def _write_to_self(self) -> None:
        """Do nothing: no other thread wakes it."""

    def due(self) -> float:
        """Return when its next callback is due; infinity means never."""
        if self._ready:
            at = self.world.now
        elif self._scheduled:
            at = self._scheduled[0].when()
        else:
            return _NEVER
        return max(at, self.frozen_until)

    def freeze(self, seconds: float) -> None:
        """Have it do nothing for so long, as a machine without CPU does."""
        self.frozen_until = self.world.now + seconds

    def resume_after_fork(self) -> None:
        """Be the running loop in a copy of the process that was forked within a callback."""
        events._set_running_loop(self)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make it the running loop, for code that is called from outside of it."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            yield
        finally:
            events._set_running_loop(before)


class MemoryTransport(asyncio.Transport):
    """One end of a connection; what it writes arrives at the other end, later and in order."""

    peer: "MemoryTransport"
    protocol: asyncio.Protocol

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine
        self._closing = False
        self._last_arrival = 0.0
        machine.transports.append(self)

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("10.0.0.1", 1), "sockname": ("10.0.0.2", 2)}.get(name, default)

    @override
    def is_closing(self) -> bool:
        return self._closing

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self._send(self.peer.deliver, bytes(data))

    @override
    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._send(self.peer.reset)
        self.machine.call_soon(self._lost)

    abort = close

    def deliver(self, data: bytes) -> None:
        """Receive bytes."""
        if not self._closing:
            self.protocol.data_received(data)

    def reset(self) -> None:
        """Receive the end of the connection."""
        if not self._closing:
            self._closing = True
            self._lost()

    def _lost(self) -> None:
        if self in self.machine.transports:
            self.machine.transports.remove(self)
        self.protocol.connection_lost(None)

    def _send(self, receive: Callable[..., object], *arguments: object) -> None:
        other, world = self.peer.machine, self.machine.world
        if other.dead:
            return
        delay = world.choices.seconds(0.0005, world.slowest, "how long a message is on its way")
        self._last_arrival = max(world.now + delay, self._last_arrival + _APART)
        other.call_at(self._last_arrival, receive, *arguments)

    @override
    def pause_reading(self) -> None:
        """Continue: nothing here is as large as a buffer."""

    @override
    def resume_reading(self) -> None:
        """Continue."""

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Have no buffer."""

    @override
    def get_write_buffer_size(self) -> int:
        return 0

    @override
    def can_write_eof(self) -> bool:
        return False

    @override
    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    @override
    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol


class HttpServer:
    """An HTTP server on a machine: aiohttp's own, under memory transports."""

    def __init__(
        self, machine: Machine, handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
    ) -> None:
        self.machine = machine
        with machine.running():
            self._server = web.Server(handle, access_log=None, keepalive_timeout=3600)

    def connect(self, client: Machine) -> ResponseHandler:
        """Open a connection from a machine to this server, and return the client's protocol."""
        near, far = MemoryTransport(client), MemoryTransport(self.machine)
        near.peer, far.peer = far, near
        near.protocol, far.protocol = ResponseHandler(loop=client), self._server()
        self.machine.call_soon(far.protocol.connection_made, far)
        near.protocol.connection_made(near)
        return near.protocol

    def connector(self, **_: Any) -> aiohttp.BaseConnector:
        """Make the pool of connections of a client, as `KubeConfig.connector` is called."""
        return _Connector(self)


class _Connector(aiohttp.BaseConnector):
    """A pool whose connections lead to one server."""

    def __init__(self, server: HttpServer) -> None:
        super().__init__(limit=0)
        self._server = server

    @override
    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        machine = asyncio.get_running_loop()
        assert isinstance(machine, Machine)
        return self._server.connect(machine)
