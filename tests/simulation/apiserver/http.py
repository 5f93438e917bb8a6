"""The simulated API server's HTTP: paths, lists, watches, and no to everything that is unknown."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import format_datetime
from hashlib import sha256

import aiohttp
from aiohttp import web

from tests.simulation.apiserver.bodies import has_null, new_in_place
from tests.simulation.apiserver.kinds import KindModel, Object, Refused, all_kinds
from tests.simulation.apiserver.store import Change, Manager, Objects, Stored, selects
from tests.simulation.machines import HttpServer, Machine, MemoryTransport, World

__all__ = ["ApiServer", "NotModelled", "Request"]

_BOOKMARK_SECONDS = 60.0
"""Between two bookmarks of a quiet watch."""
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
QUERIES = {
    "GET": {
        "labelSelector", "limit", "watch", "resourceVersion", "allowWatchBookmarks",
        "timeoutSeconds",
    },
    "POST": {"fieldManager", "fieldValidation"},
    "PUT": {"fieldManager", "fieldValidation"},
    "PATCH": {"fieldManager", "fieldValidation", "force"},
    "DELETE": set(),
}  # fmt: skip
"""Parameters that are handled, by method."""
PUT_CREATES = {"leases"}
"""Kinds of which a PUT creates what is not there."""
WHOLE, METADATA = "application/json", "application/json;as=PartialObjectMetadata"
"""Media types that are handled."""


class NotModelled(Exception):  # noqa: N818 - it names the finding
    """A request is of a form that this server does not know; the run cannot continue."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to an object or a list, read once."""

    number: int
    """Place among the requests of the run."""
    http: web.BaseRequest
    """The request of aiohttp."""
    machine: Machine
    """Who sent it."""
    method: str
    kind: KindModel
    namespace: str
    name: str
    subresource: str
    query: dict[str, str]
    content_type: str
    metadata_only: bool
    body: Object

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return self.method != "GET"

    @property
    def text(self) -> str:
        """The request in a line, for stories."""
        place = "/".join(filter(None, (self.namespace, self.name, self.subresource)))
        return f"{self.method} {self.kind.ref.plural} {place}"


Handler = Callable[["Request"], Awaitable[Stored | web.StreamResponse]]


class ApiServer:
    """An API server on a machine of the world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.machine = world.machine("apiserver")
        self.objects = Objects(world)
        """What it stores."""
        self.http = HttpServer(self.machine, self._handle)
        """Where clients connect."""
        self.trace = sha256()
        """Digest of every request and its time: equal in runs that are the same."""
        self.around: Callable[[Request, Handler], Awaitable[Stored | web.StreamResponse]] = _direct
        """Called for each request with what handles it: faults are put in here."""
        self.failure: BaseException | None = None
        """What ends the run."""
        self._count = 0
        self._expiries = 0
        self._watches: dict[tuple[str, str], list[asyncio.Event]] = {}
        self.objects.observers.append(self._wake)

    def expire_watches(self) -> None:
        """Have all watches end, as where the server has forgotten what they would read next."""
        self._expiries += 1
        for waiting in self._watches.values():
            for watch in waiting:
                watch.set()

    def _wake(self, change: Change) -> None:
        ref = change.kind.ref
        for watch in self._watches.get((ref.group, ref.plural), ()):
            watch.set()

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(http)
        except Refused as refused:
            self._note("refused", refused.code)
            body = {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": refused.message,
                **({"reason": refused.reason} if refused.reason else {}),
                "code": refused.code,
            }
            response = self._json(body, status=refused.code)
            if refused.retry_after is not None:
                response.headers["Retry-After"] = str(refused.retry_after)
            return response
        except (ConnectionResetError, aiohttp.ClientConnectionError):
            raise
        except Exception as error:
            self.failure = error
            raise

    def _note(self, *facts: object) -> None:
        self.trace.update(repr((round(self.world.now, 9), *facts)).encode())

    def _json(self, body: Object | bytes, status: int = 200) -> web.Response:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        return web.Response(
            body=text, status=status, content_type="application/json", headers=self._date()
        )

    def _date(self) -> dict[str, str]:
        return {"Date": format_datetime(self.world.utc(), usegmt=True)}

    async def _answer(self, http: web.BaseRequest) -> web.StreamResponse:
        parts = http.path.strip("/").split("/")
        query = dict(http.query)
        self._note(http.method, http.path, query.get("resourceVersion"))
        if (document := _discovery(parts)) is not None:
            return self._json(document)
        request = await self._read(http, parts, query)
        found = await self.around(request, self._do)
        if isinstance(found, Stored):
            created = request.method == "POST"
            return self._json(found.text, status=201 if created else 200)
        return found

    async def _read(
        self, http: web.BaseRequest, parts: list[str], query: dict[str, str]
    ) -> Request:
        group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (
            parts[1], parts[2], parts[3:],
        )  # fmt: skip
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        kind = all_kinds().get((group, version, rest[0]))
        if kind is None:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        accept = http.headers.get("Accept", "*/*")
        unknown = set(query) - QUERIES.get(http.method, set())
        content_type = http.headers.get("Content-Type", "")
        subresource = rest[2] if len(rest) > 2 else ""
        if http.method not in QUERIES or unknown or subresource not in ("", "status"):
            raise NotModelled(f"{http.method} {http.path} {sorted(query)}")
        self._count += 1
        transport = http.transport
        assert isinstance(transport, MemoryTransport)
        return Request(
            number=self._count,
            http=http,
            machine=transport.peer.machine,
            method=http.method,
            kind=kind,
            namespace=namespace,
            name=rest[1] if len(rest) > 1 else "",
            subresource=subresource,
            query=query,
            content_type=content_type,
            metadata_only=accept.startswith(METADATA),
            body=json.loads(await http.read() or b"{}") if http.method != "GET" else {},
        )

    async def _do(self, request: Request) -> Stored | web.StreamResponse:
        """Handle a request."""
        if request.writes:
            _check_fields(request)
            return self._write(request)
        if request.name:
            return self.objects.get(request.kind.ref, request.name, request.namespace)
        return await self._watch(request) if request.query.get("watch") else self._list(request)

    def _write(self, request: Request) -> Stored | web.StreamResponse:
        kind, body = request.kind, request.body
        manager, strict = _manager(request), request.query.get("fieldValidation") == "Strict"
        match request.method, request.content_type.partition(";")[0]:
            case "POST", "application/json" if not request.name:
                if kind.ref.namespaced:
                    body["metadata"]["namespace"] = request.namespace
                return self.objects.create(kind, body, manager, strict=strict)
            case "PATCH", "application/apply-patch+yaml":
                if has_null(body):
                    raise NotModelled(f"{request.text} with null")
                force = request.query.get("force") == "true"
                found, created = self.objects.apply(
                    kind, body, manager, force=force, subresource=request.subresource, strict=strict
                )
                return self._json(found.text, status=201) if created else found
            case "PATCH", "application/merge-patch+json":
                change = self.objects.patch
            case "PUT", "application/json":
                gone = self.objects.find(kind.ref, request.name, request.namespace) is None
                if gone and kind.ref.plural in PUT_CREATES:
                    new = new_in_place(body)
                    found = self.objects.create(kind, new, manager, strict=strict)
                    return self._json(found.text, status=201)
                change = self.objects.replace
            case "DELETE", "application/json" | "":
                return self._deleted(request)
            case _:
                raise NotModelled(f"{request.text} {request.content_type}")
        old = self.objects.get(kind.ref, request.name, request.namespace)
        return change(kind, old, body, manager, subresource=request.subresource, strict=strict)

    def _deleted(self, request: Request) -> web.StreamResponse | Stored:
        old = self.objects.get(request.kind.ref, request.name, request.namespace)
        if request.body.get("propagationPolicy") not in (None, "Background", "Foreground"):
            raise NotModelled(f"{request.text} {request.body['propagationPolicy']}")
        found = self.objects.delete(request.kind, old, request.body)
        if self.objects.find(request.kind.ref, request.name, request.namespace) is not None:
            return found
        if request.kind.ref.group == "" and request.kind.ref.plural == "pods":
            return found
        return self._json(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": {"name": request.name, "uid": old.metadata["uid"]},
            }
        )

    def _list(self, request: Request) -> web.Response:
        ref, query = request.kind.ref, request.query
        found = self.objects.all(ref, request.namespace, query.get("labelSelector", ""))
        limit = int(query.get("limit", 0))
        if (limit and len(found) > limit) or query.get("resourceVersion"):
            raise NotModelled(f"list of {len(found)} {ref.plural} {query}")
        if request.metadata_only:
            items = [json.dumps(_metadata_of(each)).encode() for each in found]
            head = b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1"'
        else:
            items = [each.text for each in found]
            head = f'{{"kind":"{ref.kind}List","apiVersion":"{ref.api_version}"'.encode()
        version = str(self.objects.version).encode()
        text = b'%s,"metadata":{"resourceVersion":"%s"},"items":[%s]}' % (
            head, version, b",".join(items),
        )  # fmt: skip
        return self._json(text)

    async def _watch(self, request: Request) -> web.StreamResponse:
        ref, query = request.kind.ref, request.query
        if request.metadata_only or not query.get("resourceVersion"):
            raise NotModelled(f"watch of {ref.plural} {query}")
        response = web.StreamResponse(headers=self._date())
        response.content_type = "application/json"
        await response.prepare(request.http)
        wake = asyncio.Event()
        waiting = self._watches.setdefault((ref.group, ref.plural), [])
        waiting.append(wake)
        try:
            await self._stream(request, response, wake)
        except (ConnectionResetError, aiohttp.ClientConnectionError):
            pass
        finally:
            waiting.remove(wake)
        return response

    async def _stream(
        self, request: Request, response: web.StreamResponse, wake: asyncio.Event
    ) -> None:
        """Send what changes until the watch ends."""
        query, ref = request.query, request.kind.ref
        end = self.world.now + float(query.get("timeoutSeconds", "300"))
        version, expiries = int(query["resourceVersion"]), self._expiries
        while self.world.now < end:
            place = self.objects.changes_after(ref, version)
            if place is None or expiries != self._expiries:
                await response.write(_line("ERROR", _GONE))
                return
            changes = self.objects.kept(ref).changes[place:]
            lines = [line for each in changes if (line := self._event(request, each))]
            if changes:
                version = changes[-1].version
            if lines:
                await response.write(b"".join(lines))
                continue
            wake.clear()
            try:
                async with asyncio.timeout(min(_BOOKMARK_SECONDS, end - self.world.now)):
                    await wake.wait()
            except TimeoutError:
                version = self.objects.version
                await response.write(_line("BOOKMARK", _bookmark(request.kind, version)))

    @staticmethod
    def _event(request: Request, change: Change) -> bytes:
        """Return the event of a change as a watch sees it; empty if it sees nothing."""
        before, after = (
            found is not None
            and request.namespace in ("", found.metadata.get("namespace", ""))
            and selects(request.query.get("labelSelector", ""), found)
            for found in (change.before, change.after)
        )
        if after:
            assert change.after is not None
            return _line("MODIFIED" if before else "ADDED", change.after.text)
        if not before:
            return b""
        last = change.after or change.before
        assert last is not None
        metadata = {**last.metadata, "resourceVersion": str(change.version)}
        return _line("DELETED", json.dumps({**last.body, "metadata": metadata}).encode())


_GONE = json.dumps(
    {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "too old resource version",
        "reason": "Expired",
        "code": 410,
    }
).encode()


def _line(kind: str, body: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)


def _bookmark(kind: KindModel, version: int) -> bytes:
    body = {
        "kind": kind.ref.kind,
        "apiVersion": kind.ref.api_version,
        "metadata": {"resourceVersion": str(version), "creationTimestamp": None},
    }
    return json.dumps(body).encode()


async def _direct(request: Request, handler: Handler) -> Stored | web.StreamResponse:
    return await handler(request)


def _manager(request: Request) -> Manager:
    operation = "Apply" if "apply-patch" in request.content_type else "Update"
    agent = request.http.headers.get("User-Agent", "unknown").split("/")[0]
    return (request.query.get("fieldManager", agent), operation, request.subresource)


def _check_fields(request: Request) -> None:
    """Refuse unknown fields before anything is looked up; a patch is judged by its result."""
    if request.method in ("POST", "PUT") and request.query.get("fieldValidation") == "Strict":
        unknown = request.kind.unknown_fields(request.body)
        if unknown:
            raise Refused(400, "BadRequest", f"strict decoding error: {unknown}")


def _metadata_of(stored: Stored) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": stored.metadata,
    }


def _discovery(parts: list[str]) -> Object | None:
    """Return a document that says what there is; None if the path is of something else."""
    kinds = all_kinds()
    if parts == ["version"]:
        return {"major": "1", "minor": "36", "gitVersion": "v1.36.0"}
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    if parts == ["apis"]:
        groups = sorted({(group, version) for group, version, _ in kinds if group})
        return {"kind": "APIGroupList", "groups": [_group(*each) for each in groups]}
    is_core = parts[0] == "api" and len(parts) == 2
    is_group = parts[0] == "apis" and len(parts) == 3
    if not (is_core or is_group):
        return None
    place = ("", parts[1]) if is_core else (parts[1], parts[2])
    return {
        "kind": "APIResourceList",
        "groupVersion": "/".join(filter(None, place)),
        "resources": [
            {
                "name": kind.ref.plural,
                "singularName": kind.ref.kind.lower(),
                "kind": kind.ref.kind,
                "namespaced": kind.ref.namespaced,
                "verbs": VERBS,
            }
            for (group, version, _), kind in kinds.items()
            if (group, version) == place
        ],
    }


def _group(group: str, version: str) -> Object:
    entry = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}
