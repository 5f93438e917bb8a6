"""The reflector against a real API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from cloister_clients.kube import KubeClient, Reflector
from cloister_clients.kube.kinds import CONFIG_MAP, Object
from tests.support.waiting import until


@asynccontextmanager
async def running(reflector: Reflector[Object]) -> AsyncIterator[None]:
    task = asyncio.create_task(reflector.run())
    try:
        assert await reflector.until(lambda: reflector.ready, within=60)
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def whole(item: Object) -> Object:
    return item


async def test_the_informer_cache_shows_the_list_and_later_events(
    client: KubeClient, namespace: str
) -> None:
    for number in range(5):
        await client.create(CONFIG_MAP, {"metadata": {"name": f"m{number}"}}, namespace)
    reflector = Reflector(client, CONFIG_MAP, whole, namespace=namespace, page=2)
    async with running(reflector):
        assert {f"m{n}" for n in range(5)} <= set(reflector.in_namespace(namespace))
        late = {"metadata": {"name": "late"}, "data": {"a": "1"}}
        made = await client.create(CONFIG_MAP, late, namespace)
        assert await reflector.reached(made["metadata"]["resourceVersion"], within=60)
        entry = reflector.by_uid(made["metadata"]["uid"])
        assert entry is not None
        assert entry == reflector.get("late", namespace)
        assert "operation" not in entry.value["metadata"]["managedFields"][0]
        await client.delete(CONFIG_MAP, "late", namespace)
        await reflector.until(lambda: reflector.get("late", namespace) is None, within=60)
        assert reflector.by_uid(made["metadata"]["uid"]) is None


async def test_listeners_hear_of_what_comes_changes_and_goes(
    client: KubeClient, namespace: str
) -> None:
    heard: list[str | None] = []
    reflector = Reflector(client, CONFIG_MAP, whole, namespace=namespace)
    reflector.listen(
        lambda value: heard.append(None if value is None else value["metadata"]["name"])
    )
    async with running(reflector):
        assert heard == [None], "after a list anything may have changed"
        made = await client.create(CONFIG_MAP, {"metadata": {"name": "one"}}, namespace)
        assert await reflector.reached(made["metadata"]["resourceVersion"], within=60)
        await client.merge_patch(CONFIG_MAP, "one", {"data": {"a": "1"}}, namespace)
        await client.delete(CONFIG_MAP, "one", namespace)
        await reflector.until(lambda: reflector.get("one", namespace) is None, within=60)
        assert [name for name in heard[1:] if name == "one"] == ["one"] * 3


async def test_one_that_cannot_be_read_does_not_hide_the_others(
    client: KubeClient, namespace: str
) -> None:
    def picky(item: Object) -> Object:
        if item["metadata"]["name"] == "bad":
            raise ValueError("no")
        return item

    await client.create(CONFIG_MAP, {"metadata": {"name": "bad"}}, namespace)
    await client.create(CONFIG_MAP, {"metadata": {"name": "good"}}, namespace)
    reflector = Reflector(client, CONFIG_MAP, picky, namespace=namespace)
    async with running(reflector):
        assert reflector.get("good", namespace) is not None
        assert reflector.get("bad", namespace) is None


async def test_the_informer_survives_many_short_watches(client: KubeClient, namespace: str) -> None:
    reflector = Reflector(client, CONFIG_MAP, whole, namespace=namespace, watch_seconds=1)
    async with running(reflector):
        for number in range(6):
            name = f"m{number}"
            await client.create(CONFIG_MAP, {"metadata": {"name": name}}, namespace)

            async def seen(name: str = name) -> bool:
                return reflector.get(name, namespace) is not None

            await until(seen, within=60)
        assert reflector.failure is None
