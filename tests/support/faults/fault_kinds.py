"""What goes wrong between a program and the API server: one class per kind of fault.

`tests.support.faults.faulty_proxy` asks each fault about each request and each watch event; which
fault is in force is the test's choice. The kinds are those of the published work on testing
controllers: crashes after each single write, stale reads after a restart, missed intermediate
states (Sieve), and the answers that a busy or broken server gives.
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
    "Writes",
    "is_about",
]

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ASIDE = (
    *("leases", "events"),
    *("selfsubjectaccessreviews", "selfsubjectrulesreviews", "tokenreviews"),
)
"""Kinds whose creation changes nothing that a decision reads."""


@dataclass(frozen=True)
class ApiRequest:
    """One request to the API server."""

    number: int
    """Its place in the order of arrival at the proxy."""
    door: str
    """Through which door it came: who asks."""
    verb: str
    """get, list, watch, create, update, patch or delete."""
    kind: str
    """Plural of the kind; empty for paths that name none."""
    namespace: str
    """Namespace; empty where there is none."""
    name: str
    """Name of the object, also of one that is created; empty for lists."""
    subresource: str
    """Such as ``status``; empty = the object itself."""
    accept: str
    """Media type that is wanted."""
    body: bytes = b""
    """Body."""

    @property
    def writes(self) -> bool:
        """Whether it changes something that is acted on: no Lease, no Event, no question."""
        return self.verb in _VERBS.values() and self.kind not in _ASIDE

    @property
    def text(self) -> str:
        """Verb and object, for messages."""
        what = "/".join(each for each in (self.kind, self.name, self.subresource) if each)
        return f"{self.verb} {what}"

    @classmethod
    def read(
        cls, number: int, door: str, method: str, path: str, query: str, accept: str, body: bytes
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
        return cls(number, door, verb, kind, namespace, name, subresource, accept, body)


def _name_in(body: bytes) -> str:
    """Return the name of the object in a body; empty = it has none."""
    try:
        return str(json.loads(body)["metadata"]["name"])
    except (ValueError, KeyError, TypeError):
        return ""


class Loss:
    """Words for what is lost of a request."""

    REQUEST = "request"
    """The connection ends before the server sees it."""
    ANSWER = "answer"
    """The server does it, and the connection ends before the answer."""


@dataclass(frozen=True)
class Injection:
    """What becomes of one request."""

    delay: float = 0.0
    """Seconds until it is passed on."""
    status: int = 0
    """Status that is answered in the server's place; 0 = the server answers."""
    reason: str = ""
    """Reason in that answer, such as ``Conflict``."""
    loss: str = ""
    """What is lost (`Loss`); empty = nothing."""
    version: str = ""
    """resourceVersion whose state a list shows; empty = the present."""


PASS = Injection()
"""It goes through."""


class Fault:
    """What a fault may do; this one does nothing."""

    def inject(self, request: ApiRequest) -> Injection:
        """Return what becomes of a request, before the server sees it."""
        del request
        return PASS

    async def before(self, request: ApiRequest) -> None:
        """Wait as long as a request is on its way to the server."""

    async def after(self, request: ApiRequest, status: int) -> None:
        """Learn what the server answered, before the one who asked does."""

    async def event(self, request: ApiRequest, event: dict[str, Any]) -> bool:
        """Return whether an event of a watch is delivered; it waits while it takes."""
        del request, event
        return True


class CrashPoints(Fault):
    """Cuts a process off after the n-th write about each of several objects, from 1.

    The server's answer to that write is never delivered, and no further write about the object
    arrives: for the object the process has died. When that is so for all of them the test kills
    the process, and one kill has been a crash at many points.
    """

    def __init__(
        self, points: Mapping[str, int], concerns: Callable[[ApiRequest, str], bool] | None = None
    ) -> None:
        self._points = dict(points)
        self._concerns = concerns or is_about
        self._gate = Gate()
        self.seen: dict[str, list[str]] = {name: [] for name in points}
        """Beginning of an object's name -> the writes about it that the server accepted."""

    def release(self) -> None:
        """End what is held: the process that asked is dead."""
        self._gate.open()

    def is_cut(self, name: str) -> bool:
        """Return whether the process is dead for an object."""
        return len(self.seen[name]) >= self._points[name]

    def _about(self, request: ApiRequest) -> str | None:
        """Return which of the objects a write is about; None = none."""
        return next((name for name in self._points if self._concerns(request, name)), None)

    @override
    async def before(self, request: ApiRequest) -> None:
        """Let no further write through after the crash."""
        name = self._about(request)
        if name is not None and self.is_cut(name):
            await self._gate.passed()
            raise ConnectionResetError("the process is dead")

    @override
    async def after(self, request: ApiRequest, status: int) -> None:
        """Count a write that the server accepted; the answer to the n-th never arrives."""
        name = self._about(request)
        if name is None or status >= 400:
            return
        self.seen[name].append(request.text)
        if self.is_cut(name):
            await self._gate.passed()
            raise ConnectionResetError("the process is dead")


def is_about(request: ApiRequest, name: str) -> bool:
    """Return whether a request writes an object of a Container: its name begins with that name."""
    return request.writes and request.name.removeprefix("acme-").startswith(name)


@dataclass
class Unreliable(Fault):
    """Fails a part of the requests with an error, or loses them, by chance with a seed."""

    chance: random.Random
    """Where chance comes from."""
    share: float
    """Part of the requests, 0 to 1."""
    statuses: Collection[int] = (409, 429, 500, 503)
    """Errors that are answered; a conflict only to writes that name a version."""
    losses: Collection[str] = ()
    """What may be lost (`Loss`)."""
    verbs: Collection[str] = ("get", "list", "create", "update", "patch", "delete")
    """Requests that are concerned; a watch is not by itself."""
    hits: int = 0
    """How many requests were hit."""

    @override
    def inject(self, request: ApiRequest) -> Injection:
        """Throw the dice."""
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
    """Passes every request on late."""

    seconds: float
    """How late."""

    @override
    def inject(self, request: ApiRequest) -> Injection:
        """Delay everything but Leases."""
        return PASS if request.kind == "leases" else Injection(delay=self.seconds)


@dataclass
class WatchesGone(Fault):
    """Ends each watch with 410 Gone after some events: whoever watches has to list again."""

    events: int
    """Events that come through."""
    ended: int = 0
    """How many watches it ended."""
    _counts: dict[int, int] = field(default_factory=dict)

    @override
    async def event(self, request: ApiRequest, event: dict[str, Any]) -> bool:
        """Count the events of a watch, and turn the one after the last into its end."""
        count = self._counts[request.number] = self._counts.get(request.number, 0) + 1
        if count > self.events:
            self.ended += 1
            event.clear()
            message = "too old resource version"
            status = {"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired"}
            event |= {"type": "ERROR", "object": {**status, "message": message}}
        return True


class Gate:
    """Lets coroutines of other threads wait until it is opened."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[asyncio.Future[None]] = []
        self.is_open = False
        """Whether nobody waits any more."""

    def open(self) -> None:
        """Let everybody go on."""
        with self._lock:
            self.is_open = True
            for each in self._waiting:
                each.get_loop().call_soon_threadsafe(_settle, each)
            self._waiting.clear()

    async def passed(self) -> None:
        """Wait until it is open."""
        opened = asyncio.get_running_loop().create_future()
        with self._lock:
            if self.is_open:
                return
            self._waiting.append(opened)
        await opened


def _settle(waiting: asyncio.Future[None]) -> None:
    """Let who waits go on, unless the connection has ended meanwhile."""
    if not waiting.done():
        waiting.set_result(None)


class Writes(Fault):
    """Writes down what the server did; what it refused, as for a conflict, comes again."""

    def __init__(self) -> None:
        self.done: list[str] = []
        """The writes that it accepted."""

    @override
    async def after(self, request: ApiRequest, status: int) -> None:
        """Remember a write that went through."""
        if request.writes and status < HTTPStatus.MULTIPLE_CHOICES:
            self.done.append(request.text)


class ServerDeath(Fault):
    """The server dies at the n-th write, from 1, and from then on refuses all but open watches.

    With a loss (`Loss`) that write is cut off before or after the server does it; without one it
    is refused with 503.
    """

    def __init__(self, at: int, loss: str = "") -> None:
        self._at = at
        self._loss = loss
        self.writes: list[str] = []
        """The writes that arrived, the last one included."""

    @property
    def dead(self) -> bool:
        """Whether the server has died."""
        return len(self.writes) >= self._at

    @override
    def inject(self, request: ApiRequest) -> Injection:
        """Count writes, and refuse what comes after the last one."""
        if request.verb == "watch":
            return PASS
        refused = Injection(status=503, reason="ServiceUnavailable")
        if self.dead:
            return refused
        if not request.writes:
            return PASS
        self.writes.append(request.text)
        if not self.dead:
            return PASS
        return Injection(loss=self._loss) if self._loss else refused


class HeldWrites(Fault):
    """Holds writes of a process on their way, and freezes the process when it holds all of them.

    Each question catches the first write that it is true of. Without ``pid`` nothing is frozen.
    """

    def __init__(
        self, pid: Callable[[], int] | None, *questions: Callable[[ApiRequest], bool]
    ) -> None:
        self._pid = pid
        self._questions = list(questions)
        self._gate = Gate()
        self.caught: list[ApiRequest] = []
        """The writes that are held."""
        self.frozen = threading.Event()
        """Set once all are held and the process is frozen."""

    def release(self) -> None:
        """Let the writes arrive."""
        self._gate.open()

    @override
    async def before(self, request: ApiRequest) -> None:
        """Hold a write that was asked for."""
        if not request.writes or self._gate.is_open:
            return
        question = next((each for each in self._questions if each(request)), None)
        if question is None:
            return
        self._questions.remove(question)
        self.caught.append(request)
        if not self._questions and self._pid is not None:
            os.kill(self._pid(), signal.SIGSTOP)
            self.frozen.set()
        await self._gate.passed()


class HeldEvents(Fault):
    """Holds the events of watches back until it is released.

    With ``newest`` only the last event of each object is delivered then: what was between was
    missed, as after a lost connection.
    """

    def __init__(
        self, concerns: Callable[[ApiRequest], bool] = lambda _: True, *, newest: bool = False
    ) -> None:
        self._concerns = concerns
        self._newest = newest
        self._gate = Gate()
        self._last: dict[str, str] = {}
        self.dropped = 0
        """How many events were left out."""

    def release(self) -> None:
        """Let the events go."""
        self._gate.open()

    @override
    async def event(self, request: ApiRequest, event: dict[str, Any]) -> bool:
        """Wait for the release; tell whether the event is still the newest of its object."""
        if not self._concerns(request) or event["type"] == "BOOKMARK":
            return True
        metadata = event["object"]["metadata"]
        place, version = f"{request.number} {metadata['uid']}", metadata["resourceVersion"]
        if self._gate.is_open:
            return True
        self._last[place] = version
        await self._gate.passed()
        if self._newest and self._last[place] != version:
            self.dropped += 1
            return False
        return True


class StaleReads(HeldEvents):
    """Shows a process that was just started the past: lists of then, and watches that stand still.

    The lists are the server's own, of an older resourceVersion.
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
        """How many lists were of the past."""

    def has_shown(self) -> bool:
        """Return whether somebody has read all that is watched as it was."""
        return self.shown > 10

    @override
    def inject(self, request: ApiRequest) -> Injection:
        """Show the past to lists."""
        past = request.verb == "list" and self._lists and not self._gate.is_open
        if not past or not self._concerns(request):
            return PASS
        self.shown += 1
        return Injection(version=self._version)
