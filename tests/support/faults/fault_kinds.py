"""Faults between a program and the API server: one class per kind of fault.

`tests.support.faults.faulty_proxy` consults each fault about each request and each watch event;
which faults are active is the test's choice. The kinds are those of the published work on testing
controllers: crashes after each single write, stale reads after a restart, missed intermediate
states (Sieve), and the responses of a busy or broken server.
"""

import asyncio
import json
import os
import random
import signal
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, unquote

from typing_extensions import override

__all__ = [
    "PASS",
    "ApiRequest",
    "CrashPoints",
    "Delay",
    "Fault",
    "HeldEvents",
    "HeldWrites",
    "Injection",
    "Loss",
    "ServerDeath",
    "StaleReads",
    "Unreliable",
    "WatchesGone",
    "WriteRecorder",
    "is_about",
]

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ASIDE = (
    *("leases", "events"),
    *("selfsubjectaccessreviews", "selfsubjectrulesreviews", "tokenreviews"),
)
"""Kinds whose creation does not affect any decision."""


@dataclass(frozen=True)
class ApiRequest:
    """One request to the API server."""

    number: int
    """Sequence number of its arrival at the proxy."""
    client: str
    """Name of the proxy port that it came through: the client."""
    verb: str
    """get, list, watch, create, update, patch or delete."""
    kind: str
    """Plural of the kind; empty = the path names none."""
    namespace: str
    """Namespace; empty = there is none."""
    name: str
    """Name of the object, including a created one; empty = a list."""
    subresource: str
    """Such as ``status``; empty = the object itself."""
    accept: str
    """Media type of the Accept header."""
    body: bytes = b""
    """Body."""

    @property
    def writes(self) -> bool:
        """Whether it changes an object other than a Lease, an Event or a review."""
        return self.verb in _VERBS.values() and self.kind not in _ASIDE

    @property
    def text(self) -> str:
        """Verb and object, for messages."""
        what = "/".join(each for each in (self.kind, self.name, self.subresource) if each)
        return f"{self.verb} {what}"

    @classmethod
    def read(
        cls, number: int, client: str, method: str, path: str, query: str, accept: str, body: bytes
    ) -> "ApiRequest":
        """Read a request by the paths of the API (Kubernetes, "API Concepts")."""
        parts = [unquote(each) for each in path.strip("/").split("/")]
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in {"status", "finalize"}:
            namespace, rest = rest[1], rest[2:]
        kind, name, subresource = (*rest, "", "", "")[:3]
        verb = _VERBS.get(method, "get" if name else "list")
        if verb == "list" and parse_qs(query).get("watch") in (["true"], ["1"]):
            verb = "watch"
        if verb == "create" and not name:
            name = _name_in(body)
        return cls(number, client, verb, kind, namespace, name, subresource, accept, body)


def _name_in(body: bytes) -> str:
    """Return the name of the object in a body; empty = it has none."""
    try:
        return str(json.loads(body)["metadata"]["name"])
    except (ValueError, KeyError, TypeError):
        return ""


class Loss:
    """Which part of a request is lost."""

    REQUEST = "request"
    """The connection is closed before the request reaches the server."""
    ANSWER = "answer"
    """The server executes it, and the connection is closed before the response."""


@dataclass(frozen=True)
class Injection:
    """What the proxy does with one request."""

    delay: float = 0.0
    """Delay in seconds before it is forwarded."""
    status: int = 0
    """Status to return instead of the server's response; 0 = forward it."""
    reason: str = ""
    """Reason in that response, such as ``Conflict``."""
    loss: str = ""
    """What is lost (`Loss`); empty = nothing."""
    version: str = ""
    """resourceVersion that a list returns; empty = the current one."""


PASS = Injection()
"""It is forwarded unchanged."""


class Fault:
    """Base of the faults; it does nothing."""

    def inject(self, request: ApiRequest) -> Injection:
        """Return what to do with a request before it reaches the server."""
        del request
        return PASS

    async def before(self, request: ApiRequest) -> None:
        """Hold a request on its way to the server."""

    async def after(self, request: ApiRequest, status: int) -> None:
        """Observe the server's response before the client receives it."""

    async def event(self, request: ApiRequest, event: dict[str, Any]) -> bool:
        """Return whether to deliver an event of a watch; waiting delays it."""
        del request, event
        return True


class CrashPoints(Fault):
    """Isolate a process after the n-th write about each of several objects, from 1.

    The server's response to that write is never delivered, and no further write about the object
    arrives: as far as the object is concerned, the process has crashed. Once this holds for all of
    them, the test kills the process, so that one kill is a crash at many points.
    """

    def __init__(
        self, points: Mapping[str, int], concerns: Callable[[ApiRequest, str], bool] | None = None
    ) -> None:
        self._points = dict(points)
        self._concerns = concerns or is_about
        self._released = ThreadsafeEvent()
        self.seen: dict[str, list[str]] = {name: [] for name in points}
        """Prefix of an object's name -> number of accepted writes about it."""

    def release(self) -> None:
        """Release held requests: their process is dead."""
        self._released.open()

    def is_cut(self, name: str) -> bool:
        """Return whether the process has crashed as far as an object is concerned."""
        return len(self.seen[name]) >= self._points[name]

    def _about(self, request: ApiRequest) -> str | None:
        """Return which of the objects a write is about; None = none of them."""
        return next((name for name in self._points if self._concerns(request, name)), None)

    @override
    async def before(self, request: ApiRequest) -> None:
        """Hold every further write after the crash."""
        name = self._about(request)
        if name is not None and self.is_cut(name):
            await self._released.passed()
            raise ConnectionResetError("the process is dead")

    @override
    async def after(self, request: ApiRequest, status: int) -> None:
        """Count a write that the server accepted; the response to the n-th is never delivered."""
        name = self._about(request)
        if name is None or status >= 400:
            return
        self.seen[name].append(request.text)
        if self.is_cut(name):
            await self._released.passed()
            raise ConnectionResetError("the process is dead")


def is_about(request: ApiRequest, name: str) -> bool:
    """Return whether a request writes an object of a Container: its name begins with that name."""
    return request.writes and request.name.removeprefix("acme-").startswith(name)


@dataclass
class Unreliable(Fault):
    """Fail or lose a random fraction of the requests, with a seed."""

    chance: random.Random
    """Source of randomness."""
    share: float
    """Fraction of the requests, 0 to 1."""
    statuses: Collection[int] = (409, 429, 500, 503)
    """Errors to return; a conflict only for writes with a resourceVersion."""
    losses: Collection[str] = ()
    """What may be lost (`Loss`)."""
    verbs: Collection[str] = ("get", "list", "create", "update", "patch", "delete")
    """Verbs of the affected requests; by default without watches."""
    hits: int = 0
    """Number of affected requests."""

    @override
    def inject(self, request: ApiRequest) -> Injection:
        """Choose at random."""
        if request.verb not in self.verbs or request.kind == "leases":
            return PASS
        if self.chance.random() >= self.share:
            return PASS
        options = [Injection(status=each, reason=_REASONS[each]) for each in self.statuses]
        options += [Injection(loss=each) for each in self.losses]
        chosen = self.chance.choice(options)
        if chosen.status == 409 and not (
            request.verb == "patch" and b"resourceVersion" in request.body
        ):
            return PASS
        self.hits += 1
        return chosen


_REASONS = {
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


@dataclass
class Delay(Fault):
    """Delay every request."""

    seconds: float
    """Delay in seconds."""

    @override
    def inject(self, request: ApiRequest) -> Injection:
        """Delay everything but Leases."""
        return PASS if request.kind == "leases" else Injection(delay=self.seconds)


@dataclass
class WatchesGone(Fault):
    """End each watch with 410 Gone after some events, so that the client must list again."""

    events: int
    """Events that are delivered."""
    ended: int = 0
    """Number of ended watches."""
    _counts: dict[int, int] = field(default_factory=dict)

    @override
    async def event(self, request: ApiRequest, event: dict[str, Any]) -> bool:
        """Count the events of a watch, and replace the one after the last with 410 Gone."""
        count = self._counts[request.number] = self._counts.get(request.number, 0) + 1
        if count > self.events:
            self.ended += 1
            event.clear()
            message = "too old resource version"
            status = {"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired"}
            event |= {"type": "ERROR", "object": {**status, "message": message}}
        return True


class ThreadsafeEvent:
    """An event for coroutines of several threads' loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[asyncio.Future[None]] = []
        self.is_open = False
        """Whether it is set."""

    def open(self) -> None:
        """Set it and wake all waiters."""
        with self._lock:
            self.is_open = True
            for each in self._waiting:
                each.get_loop().call_soon_threadsafe(_settle, each)
            self._waiting.clear()

    async def passed(self) -> None:
        """Wait until it is set."""
        opened = asyncio.get_running_loop().create_future()
        with self._lock:
            if self.is_open:
                return
            self._waiting.append(opened)
        await opened


def _settle(waiting: asyncio.Future[None]) -> None:
    """Wake a waiter, unless its connection has been closed meanwhile."""
    if not waiting.done():
        waiting.set_result(None)


class WriteRecorder(Fault):
    """Record accepted writes; refused ones, such as conflicts, are retried by the client."""

    def __init__(self, concerns: Callable[[ApiRequest], bool]) -> None:
        self._concerns = concerns
        self.done: list[str] = []
        """The accepted writes."""

    @override
    async def after(self, request: ApiRequest, status: int) -> None:
        """Record an accepted write."""
        if request.writes and self._concerns(request) and status < HTTPStatus.MULTIPLE_CHOICES:
            self.done.append(request.text)


class ServerDeath(Fault):
    """Crash the server at the n-th write of interest, from 1; afterwards only open watches go on.

    With a loss (`Loss`) that write is lost before or after its execution; without one it
    is refused with 503.
    """

    def __init__(self, at: int, loss: str, concerns: Callable[[ApiRequest], bool]) -> None:
        self._at = at
        self._loss = loss
        self._concerns = concerns
        self.writes: list[str] = []
        """The received writes, including the last one."""

    @property
    def dead(self) -> bool:
        """Whether the server has crashed."""
        return len(self.writes) >= self._at

    @override
    def inject(self, request: ApiRequest) -> Injection:
        """Count writes, and refuse all requests after the last one."""
        if request.verb == "watch":
            return PASS
        refused = Injection(status=503, reason="ServiceUnavailable")
        if self.dead:
            return refused
        if not request.writes or not self._concerns(request):
            return PASS
        self.writes.append(request.text)
        if not self.dead:
            return PASS
        return Injection(loss=self._loss) if self._loss else refused


class HeldWrites(Fault):
    """Hold writes of a process on their way, and freeze the process once all of them are held.

    Each predicate catches the first write that it matches. Without ``pid`` nothing is frozen.
    """

    def __init__(
        self, pid: Callable[[], int] | None, *predicates: Callable[[ApiRequest], bool]
    ) -> None:
        self._pid = pid
        self._predicates = list(predicates)
        self._released = ThreadsafeEvent()
        self.caught: list[ApiRequest] = []
        """The held writes."""
        self.frozen = threading.Event()
        """Set once all are held and the process is frozen."""

    def release(self) -> None:
        """Forward the held writes."""
        self._released.open()

    @override
    async def before(self, request: ApiRequest) -> None:
        """Hold a write that matches a predicate."""
        if not request.writes or self._released.is_open:
            return
        predicate = next((each for each in self._predicates if each(request)), None)
        if predicate is None:
            return
        self._predicates.remove(predicate)
        self.caught.append(request)
        if not self._predicates and self._pid is not None:
            os.kill(self._pid(), signal.SIGSTOP)
            self.frozen.set()
        await self._released.passed()


class HeldEvents(Fault):
    """Hold back the events of watches until released.

    With ``newest`` only the last event of each object is delivered then: intermediate ones are
    missed, as after a lost connection.
    """

    def __init__(
        self, concerns: Callable[[ApiRequest], bool] = lambda _: True, *, newest: bool = False
    ) -> None:
        self._concerns = concerns
        self._newest = newest
        self._released = ThreadsafeEvent()
        self._last: dict[str, str] = {}
        self.dropped = 0
        """Number of skipped events."""

    def release(self) -> None:
        """Deliver the held events."""
        self._released.open()

    @override
    async def event(self, request: ApiRequest, event: dict[str, Any]) -> bool:
        """Wait for the release; return whether the event is still the newest of its object."""
        if not self._concerns(request) or event["type"] == "BOOKMARK":
            return True
        metadata = event["object"]["metadata"]
        place, version = f"{request.number} {metadata['uid']}", metadata["resourceVersion"]
        if self._released.is_open:
            return True
        self._last[place] = version
        await self._released.passed()
        if self._newest and self._last[place] != version:
            self.dropped += 1
            return False
        return True


class StaleReads(HeldEvents):
    """Serve a just started process stale reads: lists of an earlier version, and stalled watches.

    The lists are the server's own, at an older resourceVersion.
    """

    def __init__(
        self,
        version: str,
        concerns: Callable[[ApiRequest], bool] = lambda _: True,
        *,
        lists: bool = True,
    ) -> None:
        super().__init__(concerns)
        self._version = version
        self._lists = lists
        self.shown = 0
        """Number of stale lists."""

    def has_shown(self) -> bool:
        """Return whether a client has read stale lists of all watched kinds."""
        return self.shown > 10

    @override
    def inject(self, request: ApiRequest) -> Injection:
        """Serve lists at the older version."""
        past = request.verb == "list" and self._lists and not self._released.is_open
        if not past or not self._concerns(request):
            return PASS
        self.shown += 1
        return Injection(version=self._version)
