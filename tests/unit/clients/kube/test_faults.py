"""What the client repeats, what it does not, and what it makes of broken answers."""

import asyncio
import contextlib
import socket

import pytest

from cloister_clients.kube import (
    AlreadyExists,
    Conflict,
    Gone,
    KubeClient,
    KubeConfig,
    KubeError,
    NotFound,
    Unauthorized,
    Unavailable,
    WatchEventType,
)
from cloister_clients.kube.errors import error_from_response
from cloister_clients.kube.kinds import CONFIG_MAP, NAMESPACE, POD, POD_METRICS, KindRef, of
from cloister_clients.kube.transport import TransportLimits
from cloister_crds.backoff import Backoff
from cloister_crds.kinds import Container
from tests.unit.clients.kube.conftest import Connection, Script

BODY = {"metadata": {"name": "a"}, "data": {}}


async def busy(connection: Connection) -> None:
    await connection.refuse(429, "TooManyRequests", retry_after="0")


async def fine(connection: Connection) -> None:
    await connection.reply(200, {"kind": "ConfigMap", "metadata": {"name": "a"}})


async def broken(connection: Connection) -> None:
    connection.drop()


async def test_throttled_requests_are_retried_even_to_create(
    script: Script, client: KubeClient
) -> None:
    script.steps = [busy, busy, fine]
    await client.create(CONFIG_MAP, BODY, "ns")
    assert [asked.method for asked in script.asked] == ["POST"] * 3
    assert script.asked[0].query == {"fieldManager": "tests", "fieldValidation": "Strict"}


async def test_retries_of_throttled_requests_are_bounded(
    script: Script, client: KubeClient
) -> None:
    script.steps = [busy]
    with pytest.raises(Unavailable) as caught:
        await client.get(CONFIG_MAP, "a", "ns")
    assert caught.value.status == 429
    assert len(script.asked) == 3


async def test_an_overload_without_retry_after_is_not_retried(
    script: Script, client: KubeClient
) -> None:
    async def down(connection: Connection) -> None:
        await connection.refuse(503, "ServiceUnavailable")

    script.steps = [down]
    with pytest.raises(Unavailable):
        await client.get(CONFIG_MAP, "a", "ns")
    assert len(script.asked) == 1


async def test_what_broke_is_repeated_when_that_is_harmless(
    script: Script, client: KubeClient
) -> None:
    script.steps = [broken, fine]
    await client.get(CONFIG_MAP, "a", "ns")
    script.asked.clear()
    await client.apply(CONFIG_MAP, BODY, "ns")
    assert [asked.method for asked in script.asked] == ["PATCH", "PATCH"]


@pytest.mark.parametrize("verb", ["create", "patch", "replace"])
async def test_what_broke_is_not_repeated_when_it_may_be_done(
    script: Script, client: KubeClient, verb: str
) -> None:
    script.steps = [broken]
    versioned = {"metadata": {"resourceVersion": "1"}, "data": {}}
    calls = {
        "create": lambda: client.create(CONFIG_MAP, BODY, "ns"),
        "patch": lambda: client.merge_patch(CONFIG_MAP, "a", versioned, "ns"),
        "replace": lambda: client.replace(CONFIG_MAP, BODY, "ns"),
    }
    with pytest.raises(Unavailable) as caught:
        await calls[verb]()
    assert caught.value.status == 0
    assert len(script.asked) == 1


async def test_a_server_that_is_not_there_is_named() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        limits = TransportLimits(attempts=2, backoff=Backoff(0.001, 10))
        async with KubeClient(
            KubeConfig(server=address), field_manager="t", user_agent="t", limits=limits
        ) as client:
            with pytest.raises(Unavailable, match=address):
                await client.create(CONFIG_MAP, BODY, "ns")


async def test_a_silent_server_is_given_up(script: Script) -> None:
    waiting = asyncio.Event()

    async def silent(connection: Connection) -> None:
        await waiting.wait()

    script.steps = [silent]
    config = KubeConfig(server=f"http://127.0.0.1:{script.port}")
    limits = TransportLimits(timeout=0.2, attempts=1)
    async with KubeClient(config, field_manager="t", user_agent="t", limits=limits) as client:
        with pytest.raises(Unavailable):
            await client.get(CONFIG_MAP, "a", "ns")
    waiting.set()


async def test_a_response_that_is_not_json_is_an_error(script: Script, client: KubeClient) -> None:
    async def page(connection: Connection) -> None:
        await connection.reply(200, ["no object"])

    script.steps = [page]
    with pytest.raises(Unavailable, match="did not respond with an object"):
        await client.get(CONFIG_MAP, "a", "ns")


async def test_a_list_without_chunks_is_read_up_to_its_bound(
    script: Script, client: KubeClient
) -> None:
    async def usages(connection: Connection) -> None:
        await connection.reply(200, {"items": []})

    script.steps = [usages]
    content = await client.list_content(POD_METRICS, label_selector="a", largest=13)
    assert content == b'{"items": []}'
    (asked,) = script.asked
    assert (asked.path, asked.query) == (
        "/apis/metrics.k8s.io/v1beta1/pods",
        {"labelSelector": "a"},
    )
    with pytest.raises(KubeError, match="more than 12 bytes"):
        await client.list_content(POD_METRICS, largest=12)
    assert len(script.asked) == 2, "it would be as large again"


async def test_credentials_are_refreshed_once_after_a_401(script: Script) -> None:
    tokens = ["old", "new"]

    class Source:
        async def token(self) -> str:
            return tokens[0]

        def forget(self) -> None:
            if len(tokens) > 1:
                tokens.pop(0)

    async def judge(connection: Connection) -> None:
        if connection.asked.headers["authorization"] == "Bearer new":
            await fine(connection)
        else:
            await connection.refuse(401, "Unauthorized")

    script.steps = [judge]
    server = f"http://127.0.0.1:{script.port}"
    config = KubeConfig(server=server, credentials=Source())
    async with KubeClient(config, field_manager="t", user_agent="t") as client:
        await client.get(CONFIG_MAP, "a", "ns")
        assert len(script.asked) == 2
        tokens[:] = ["wrong"]
        with pytest.raises(Unauthorized):
            await client.get(CONFIG_MAP, "a", "ns")
    assert len(script.asked) == 4


async def test_a_watch_reads_lines_that_come_in_pieces(script: Script, client: KubeClient) -> None:
    async def stream(connection: Connection) -> None:
        await connection.begin_stream()
        text = b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n\n'
        for place in range(0, len(text), 7):
            await connection.chunk(text[place : place + 7])
        await connection.chunk(b'{"type":"BOOKMARK","object":{"metadata":')
        await connection.chunk(b'{"resourceVersion":"9"}}}')
        await connection.end_stream()

    script.steps = [stream]
    events = [event async for event in client.watch(CONFIG_MAP, resource_version="5")]
    assert [event.type for event in events] == [WatchEventType.ADDED, WatchEventType.BOOKMARK]
    assert script.asked[0].query["resourceVersion"] == "5"
    assert script.asked[0].query["allowWatchBookmarks"] == "true"
    assert script.asked[0].path == "/api/v1/configmaps"


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n', Gone),
        (b"not json\n", Unavailable),
        (b'{"type":"NEW","object":{}}\n', Unavailable),
        (b'{"type":"ADDED"}\n', Unavailable),
    ],
)
async def test_errors_of_a_watch_are_raised(
    script: Script, client: KubeClient, lines: bytes, kind: type[KubeError]
) -> None:
    async def stream(connection: Connection) -> None:
        await connection.begin_stream()
        await connection.chunk(lines)

    script.steps = [stream]
    with pytest.raises(kind):
        async for _ in client.watch(CONFIG_MAP, resource_version="5"):
            pass


async def test_a_watch_that_breaks_is_an_error(script: Script, client: KubeClient) -> None:
    async def stream(connection: Connection) -> None:
        await connection.begin_stream()
        await connection.chunk(b'{"type":"ADDED","object":{"meta')
        connection.drop()

    script.steps = [stream]
    with pytest.raises(Unavailable):
        async for _ in client.watch(CONFIG_MAP, resource_version="5"):
            pass


async def test_a_watch_that_is_refused_is_an_error(script: Script, client: KubeClient) -> None:
    async def refuse(connection: Connection) -> None:
        await connection.refuse(410, "Gone")

    script.steps = [refuse]
    with pytest.raises(Gone):
        async for _ in client.watch(CONFIG_MAP, resource_version="5"):
            pass


async def test_a_list_that_took_too_long_is_gone(script: Script, client: KubeClient) -> None:
    async def first(connection: Connection) -> None:
        meta = {"resourceVersion": "7", "continue": "next"}
        await connection.reply(200, {"metadata": meta, "items": [{"metadata": {"name": "a"}}]})

    async def second(connection: Connection) -> None:
        assert connection.asked.query["continue"] == "next"
        await connection.refuse(410, "Expired")

    script.steps = [first, second]
    with pytest.raises(Gone):
        await client.list(CONFIG_MAP)


async def test_a_delete_carries_its_preconditions(script: Script, client: KubeClient) -> None:
    script.steps = [fine]
    await client.delete(
        POD, "a", "ns", uid="u", resource_version="3", grace_period=0, propagation="Foreground"
    )
    assert script.asked[0].body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "3"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground",
    }


def test_each_status_of_the_api_server_has_its_exception() -> None:
    def status(code: int, reason: str) -> bytes:
        return f'{{"kind":"Status","code":{code},"reason":"{reason}","message":"m"}}'.encode()

    assert type(error_from_response(409, status(409, "AlreadyExists"))) is AlreadyExists
    assert type(error_from_response(409, status(409, "Conflict"))) is Conflict
    assert type(error_from_response(404, status(404, "NotFound"))) is NotFound
    plain = error_from_response(502, b"<html>bad gateway</html>")
    assert type(plain) is Unavailable
    assert "bad gateway" in str(plain)
    empty = error_from_response(418, b"")
    assert type(empty) is KubeError
    assert str(empty) == "418: HTTP 418"
    details = b'{"kind":"Status","code":429,"details":{"retryAfterSeconds":7}}'
    assert error_from_response(429, details).retry_after == 7


def test_paths_are_quoted_and_complete() -> None:
    assert of(Container).path("ns", "a", "status") == (
        "/apis/cloister.dev/v1alpha1/namespaces/ns/containers/a/status"
    )
    assert POD.path() == "/api/v1/pods"
    assert NAMESPACE.path(None, "a/../b") == "/api/v1/namespaces/a%2F..%2Fb"
    with pytest.raises(ValueError, match="needs a namespace"):
        POD.path(None, "a")
    with pytest.raises(ValueError, match="has no namespace"):
        NAMESPACE.path("ns")
    assert KindRef("g", "v1", "things", "Thing").api_version == "g/v1"


async def test_closing_ends_a_watch(script: Script, client: KubeClient) -> None:
    async def stream(connection: Connection) -> None:
        await connection.begin_stream()
        await connection.event("ADDED", {"metadata": {"name": "a"}})

    script.steps = [stream]
    events = client.watch(CONFIG_MAP, resource_version="5")
    assert (await anext(events)).object["metadata"]["name"] == "a"
    with contextlib.suppress(StopAsyncIteration):
        await events.aclose()
