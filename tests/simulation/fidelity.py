"""The same requests to a real API server and to the simulated one, and what must be equal.

A sequence of operations is data. Uids, versions, times and the owners of fields differ between two
servers: they are replaced by the number of their first occurrence, or left out.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlencode

import aiohttp
import httpx

from cloister_clients.kube.kinds import CONFIG_MAP, LEASE, NAMESPACE, KindRef, of
from cloister_crds.kinds import Container, SSHKey
from tests.simulation.apiserver.http import ApiServer
from tests.simulation.apiserver.kinds import Object, all_kinds
from tests.simulation.choices import Choices
from tests.simulation.machines import World

__all__ = ["KINDS", "NAMES", "Operation", "Response", "Server", "compared", "real", "simulated"]

KINDS: Mapping[str, KindRef] = {
    "configmap": CONFIG_MAP,
    "lease": LEASE,
    "container": of(Container),
    "sshkey": of(SSHKey),
}
"""Kinds that the operations are about."""
T = TypeVar("T")
NAMES = ("a", "b")
"""Names of the objects; controllers make others, such as the ConfigMap of certificates."""
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Operation:
    """One request about an object of the sequence's namespace."""

    verb: str
    """create, apply, patch, replace, delete, get or list."""
    kind: str
    """Key of `KINDS`."""
    name: str
    body: Object = field(default_factory=dict)
    """What is sent; of a delete its options. ``$version`` and ``$uid`` stand for those of the
    object, as it was returned last."""
    manager: str = "one"
    status: bool = False
    """Whether it is about the status."""
    force: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """What a server returned."""

    code: int
    body: Object


@dataclass(frozen=True, slots=True)
class Server:
    """How an API server is used."""

    send: Callable[[str, str, str, Object | None], Response]
    """Sends a request: method, path with query, media type and body."""
    events: Callable[[str, int], list[Object]]
    """Path of a watch and how many events are expected -> the events."""


def real(client: httpx.Client) -> Server:
    """Return a real API server."""

    def send(method: str, path: str, media: str, body: Object | None) -> Response:
        content = None if body is None else json.dumps(body)
        headers = {"Content-Type": media, "User-Agent": "fidelity"}
        found = client.request(method, path, content=content, headers=headers)
        return Response(found.status_code, found.json())

    def events(path: str, expected: int) -> list[Object]:
        found: list[Object] = []
        with client.stream("GET", f"{path}&timeoutSeconds=5") as stream:
            for line in stream.iter_lines() if expected else ():
                found.append(json.loads(line))
                if len(_ours(found)) >= expected:
                    break
        return _ours(found)

    return Server(send, events)


@contextmanager
def simulated() -> Iterator[Server]:
    """Provide a simulated API server."""
    world = World(Choices(1))
    server = ApiServer(world)
    machine = world.machine("client")

    async def request(method: str, path: str, media: str, body: Object | None) -> Response:
        headers = {"Content-Type": media, "User-Agent": "fidelity"}
        async with aiohttp.ClientSession(connector=server.http.connector()) as session:
            content = None if body is None else json.dumps(body)
            url = f"http://apiserver{path}"
            async with session.request(method, url, data=content, headers=headers) as found:
                return Response(found.status, await found.json(content_type=None))

    def send(method: str, path: str, media: str, body: Object | None) -> Response:
        with machine.running():
            task: asyncio.Task[Response] = machine.create_task(request(method, path, media, body))
        return finish(task)

    async def read(path: str) -> bytes:
        url = f"http://apiserver{path}&timeoutSeconds=1"
        pool = server.http.connector()
        async with aiohttp.ClientSession(connector=pool) as session, session.get(url) as found:
            return await found.read()

    def finish(task: asyncio.Task[T]) -> T:
        assert world.run_until(lambda: task.done() or server.failure, within=60)
        if server.failure is not None:
            raise server.failure
        return task.result()

    def events(path: str, expected: int) -> list[Object]:
        with machine.running():
            task: asyncio.Task[bytes] = machine.create_task(read(path))
        return _ours([json.loads(line) for line in finish(task).splitlines()])

    for name in ("default", "kube-system"):
        _create_namespace(server, name)
    try:
        yield Server(send, events)
    finally:
        world.close()


def _create_namespace(server: ApiServer, name: str) -> None:
    kind = all_kinds()["", "v1", "namespaces"]
    server.objects.create(kind, {"metadata": {"name": name}}, ("admin", "Update", ""))


@dataclass(slots=True)
class _Numbers:
    """Replaces what differs between two servers by numbers of first occurrence."""

    known: dict[str, str] = field(default_factory=dict)

    def of(self, what: str, value: str) -> str:
        return self.known.setdefault(f"{what}:{value}", f"{what}-{len(self.known)}")

    def plain(self, body: Object) -> Object:
        """Return an object, a list or a status without what is a server's own."""
        if body.get("kind") == "Status":
            return {n: body[n] for n in ("status", "reason", "code") if n in body}
        if "items" in body:
            ours = (each for each in body["items"] if each["metadata"]["name"] in NAMES)
            return {"items": [self.plain(each) for each in ours]}
        if "metadata" not in body:
            return body
        metadata = dict(body["metadata"])
        metadata.pop("managedFields", None)
        for name in ("uid", "resourceVersion"):
            if name in metadata:
                metadata[name] = self.of(name, metadata[name])
        for name in ("creationTimestamp", "deletionTimestamp"):
            if metadata.get(name):
                metadata[name] = name
        kept = {n: v for n, v in body.items() if n not in ("metadata", "apiVersion", "kind")}
        return {"metadata": metadata, **kept}


def _ours(events: list[Object]) -> list[Object]:
    """Return the events about the objects of a sequence."""
    changes = (each for each in events if each["type"] != "BOOKMARK")
    return [each for each in changes if each["object"]["metadata"]["name"] in NAMES]


def compared(
    server: Server, namespace: str, operations: list[Operation], expected: Mapping[str, int]
) -> list[Any]:
    """Run a sequence in a namespace of its own, and return all that must be equal.

    That is the code and the object of each response, and in the end the events of a watch over
    each kind since the beginning.

    Parameters
    ----------
    expected
        Kind -> how many events another server had.
    """
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    first = server.send("POST", NAMESPACE.path(), "application/json", body).body
    numbers = _Numbers()
    seen: dict[tuple[str, str], Object] = {}
    results: list[Any] = []
    for operation in operations:
        found = _send(server, namespace, operation, seen)
        metadata = found.body.get("metadata", {})
        if metadata.get("uid"):
            seen[operation.kind, operation.name] = metadata
        results.append((operation.verb, found.code, numbers.plain(found.body)))
    version = first["metadata"]["resourceVersion"]
    for kind, ref in KINDS.items():
        path = f"{ref.path(namespace)}?watch=true&resourceVersion={version}"
        events = server.events(path, expected.get(kind, 0))
        results.append(
            ("watch", kind, [(each["type"], numbers.plain(each["object"])) for each in events])
        )
    return results


def _send(
    server: Server, namespace: str, operation: Operation, seen: Mapping[tuple[str, str], Object]
) -> Response:
    ref = KINDS[operation.kind]
    metadata = seen.get((operation.kind, operation.name), {})
    body = _filled(operation.body, metadata)
    write = urlencode({"fieldManager": operation.manager, "fieldValidation": "Strict"})
    path = ref.path(namespace, operation.name, "status" if operation.status else None)
    whole = {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        **body,
        "metadata": {"name": operation.name, "namespace": namespace, **body.get("metadata", {})},
    }
    force = "true" if operation.force else "false"
    method, target, media, sent = {
        "create": ("POST", f"{ref.path(namespace)}?{write}", _JSON, whole),
        "apply": ("PATCH", f"{path}?{write}&force={force}", APPLY, whole),
        "patch": ("PATCH", f"{path}?{write}", MERGE, body),
        "replace": ("PUT", f"{path}?{write}", _JSON, whole),
        "delete": ("DELETE", path, _JSON, body),
        "get": ("GET", path, _JSON, None),
        "list": ("GET", ref.path(namespace), _JSON, None),
    }[operation.verb]
    return server.send(method, target, media, sent)


_JSON = "application/json"


def _filled(value: Any, metadata: Object) -> Any:
    """Return a body with the version and the uid of the object in the place of their names."""
    if isinstance(value, dict):
        return {name: _filled(inner, metadata) for name, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, metadata) for inner in value]
    # Of an object that was never there: no server has either.
    unknown = {"$version": "1", "$uid": "00000000-0000-4000-8000-000000000000"}
    known = {"$version": metadata.get("resourceVersion"), "$uid": metadata.get("uid")}
    return (known.get(value) or unknown.get(value)) if value in unknown else value
