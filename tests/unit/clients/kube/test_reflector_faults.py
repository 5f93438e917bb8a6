"""What the reflector makes of a server with faults: it always ends up with what the server has."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cloister_clients.kube import KubeClient, Reflector
from cloister_clients.kube.kinds import CONFIG_MAP, Object
from cloister_crds.backoff import Backoff
from tests.support.waiting import until
from tests.unit.clients.kube.conftest import Connection, Script


def item(name: str, version: int, uid: str = "") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
        }
    }


def listing(version: int, *items: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version)}, "items": list(items)}


@pytest.fixture
async def reflector(client: KubeClient) -> Reflector[Object]:
    return Reflector(
        client, CONFIG_MAP, lambda found: found, backoff=Backoff(first=0.001, longest=0.01)
    )


@contextlib.asynccontextmanager
async def running(reflector: Reflector[Object]) -> AsyncIterator[None]:
    task = asyncio.create_task(reflector.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def names(reflector: Reflector[Object]) -> set[str]:
    return {entry.name for entry in reflector.all()}


async def test_it_takes_a_broken_watch_up_where_it_stopped(
    script: Script, reflector: Reflector[Object]
) -> None:
    @script.then
    async def first(connection: Connection) -> None:
        await connection.reply(200, listing(5, item("a", 3)))

    @script.then
    async def breaking(connection: Connection) -> None:
        assert connection.asked.query["resourceVersion"] == "5"
        await connection.begin_stream()
        await connection.event("ADDED", item("b", 7))
        connection.drop()

    @script.then
    async def going_on(connection: Connection) -> None:
        assert connection.asked.query["resourceVersion"] == "7"
        await connection.begin_stream()
        await connection.event("BOOKMARK", {"metadata": {"resourceVersion": "20"}})
        await connection.event("DELETED", item("a", 21))

    async with running(reflector):
        assert await reflector.until(lambda: reflector.version == 21, within=30)
        assert names(reflector) == {"b"}
        assert reflector.failure is None
        assert [asked.query.get("watch") for asked in script.asked] == [None, "true", "true"]


async def test_it_lists_again_when_its_state_is_gone(
    script: Script, reflector: Reflector[Object]
) -> None:
    @script.then
    async def first(connection: Connection) -> None:
        await connection.reply(200, listing(5, item("a", 3), item("b", 4)))

    @script.then
    async def gone(connection: Connection) -> None:
        await connection.begin_stream()
        await connection.event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})

    @script.then
    async def second(connection: Connection) -> None:
        # While the new list is on its way the earlier copy is still there, whole.
        assert names(reflector) == {"a", "b"}
        await connection.reply(200, listing(50, item("b", 4), item("c", 40)))

    @script.then
    async def quiet(connection: Connection) -> None:
        await connection.begin_stream()

    async with running(reflector):
        assert await reflector.until(lambda: reflector.version == 50, within=30)
        assert names(reflector) == {"b", "c"}
        assert set(reflector.in_namespace("ns")) == {"b", "c"}
        assert reflector.by_uid("uid-a") is None


async def test_an_index_follows_what_happens_to_its_objects(
    script: Script, client: KubeClient
) -> None:
    def words(found: Object) -> list[str]:
        return list(found["metadata"].get("labels", {}))

    def labelled(name: str, version: int, *labels: str, uid: str = "") -> dict[str, Any]:
        made = item(name, version, uid)
        made["metadata"]["labels"] = dict.fromkeys(labels, "")
        return made

    @script.then
    async def first(connection: Connection) -> None:
        await connection.reply(200, listing(5, labelled("a", 3, "x", "y"), labelled("b", 4, "x")))

    @script.then
    async def changes(connection: Connection) -> None:
        await connection.begin_stream()
        await connection.event("MODIFIED", labelled("a", 6, "y", "z"))
        await connection.event("DELETED", labelled("b", 7, "x"))
        await connection.event("ADDED", labelled("b", 8, "z", uid="later"))
        await connection.event("ADDED", labelled("c", 9, "y"))
        await connection.event("ADDED", labelled("c", 10, "x", uid="without a deletion between"))
        await connection.event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})

    @script.then
    async def second(connection: Connection) -> None:
        found = {key: {one.name for one in indexed.by_index("word", key)} for key in "xyz"}
        assert found == {"x": {"c"}, "y": {"a"}, "z": {"a", "b"}}
        await connection.reply(200, listing(50, labelled("d", 20, "x")))

    @script.then
    async def quiet(connection: Connection) -> None:
        await connection.begin_stream()

    indexed = Reflector(
        client,
        CONFIG_MAP,
        lambda found: found,
        backoff=Backoff(first=0.001, longest=0.01),
        indexers={"word": words},
    )
    async with running(indexed):
        assert await indexed.until(lambda: indexed.version == 50, within=30)
        assert [one.name for one in indexed.by_index("word", "x")] == ["d"]
        assert not indexed.by_index("word", "z")
        assert not indexed.by_index("other", "x")


async def test_a_server_restored_from_a_backup_is_listed_again(
    script: Script, reflector: Reflector[Object]
) -> None:
    """Such a server knows no such version and answers 504, never 410."""

    async def answer(connection: Connection) -> None:
        if "watch" not in connection.asked.query:
            restored = len(script.asked) > 1
            await connection.reply(200, listing(3 if restored else 900, item("a", 2)))
        elif connection.asked.query["resourceVersion"] == "900":
            await connection.refuse(504, "Timeout")
        else:
            await connection.begin_stream()
            await connection.event("ADDED", item("b", 4))

    script.steps = [answer]
    async with running(reflector):
        assert await reflector.until(lambda: reflector.version == 4, within=30)
        assert names(reflector) == {"a", "b"}


async def test_a_name_used_again_belongs_to_the_new_object(
    script: Script, reflector: Reflector[Object]
) -> None:
    @script.then
    async def first(connection: Connection) -> None:
        await connection.reply(200, listing(5, item("a", 3, "old")))

    @script.then
    async def stream(connection: Connection) -> None:
        await connection.begin_stream()
        await connection.event("ADDED", item("a", 9, "new"))
        await connection.event("DELETED", item("a", 8, "old"))
        await connection.event("BOOKMARK", {"metadata": {"resourceVersion": "12"}})

    async with running(reflector):
        assert await reflector.until(lambda: reflector.version == 12, within=30)
        assert reflector.by_uid("old") is None
        entry = reflector.get("a", "ns")
        assert entry is not None
        assert entry.uid == "new"


async def test_it_says_why_it_is_not_ready(script: Script, reflector: Reflector[Object]) -> None:
    @script.then
    async def forbidden(connection: Connection) -> None:
        await connection.refuse(403, "Forbidden")

    async with running(reflector):
        assert not reflector.ready

        async def told() -> bool:
            return "Forbidden" in str(reflector.failure) and len(script.asked) > 2

        await until(told, every=0.01, what="the refusal of several lists")
        assert not await reflector.reached("1", within=0.05)
        assert not reflector.ready
