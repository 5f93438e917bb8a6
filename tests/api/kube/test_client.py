"""The verbs of the client against a real API server."""

import asyncio
import gc
import uuid
import warnings
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cloister_clients.kube import (
    AlreadyExists,
    Conflict,
    Invalid,
    KubeClient,
    KubeConfig,
    KubeError,
    NotFound,
    Unauthorized,
    WatchEventType,
)
from cloister_clients.kube.config import ConfigError
from cloister_clients.kube.errors import BadRequest, Forbidden
from cloister_clients.kube.kinds import CONFIG_MAP, NAMESPACE, SECRET

if TYPE_CHECKING:
    from dev.cluster import Cluster


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def test_an_object_goes_through_its_life(client: KubeClient, namespace: str) -> None:
    made = await client.create(CONFIG_MAP, config_map("one", a="1"), namespace)
    assert made["kind"] == "ConfigMap"
    assert made["metadata"]["managedFields"][0]["manager"] == "tests"
    patched = await client.merge_patch(
        CONFIG_MAP, "one", {"data": {"a": None, "b": "2"}}, namespace
    )
    assert patched["data"] == {"b": "2"}
    read = await client.get(CONFIG_MAP, "one", namespace)
    assert read["data"] == {"b": "2"}
    read["data"] = {"c": "3"}
    replaced = await client.replace(CONFIG_MAP, read)
    assert replaced["data"] == {"c": "3"}
    await client.delete(CONFIG_MAP, "one", namespace, uid=made["metadata"]["uid"])
    with pytest.raises(NotFound, match="one"):
        await client.get(CONFIG_MAP, "one", namespace)


async def test_apply_creates_and_takes_fields_away(client: KubeClient, namespace: str) -> None:
    await client.apply(CONFIG_MAP, config_map("one", a="1", b="2"), namespace)
    applied = await client.apply(CONFIG_MAP, config_map("one", a="1"), namespace)
    assert applied["data"] == {"a": "1"}


async def test_apply_brings_back_what_is_gone_unless_it_names_the_uid(
    client: KubeClient, namespace: str
) -> None:
    made = await client.create(CONFIG_MAP, config_map("one", a="1"), namespace)
    known = {name: made["metadata"][name] for name in ("uid", "resourceVersion")}
    await client.delete(CONFIG_MAP, "one", namespace)
    body = config_map("one", a="2")
    with pytest.raises(Conflict):
        await client.apply(CONFIG_MAP, {**body, "metadata": body["metadata"] | known}, namespace)
    known.pop("uid")
    again = await client.apply(
        CONFIG_MAP, {**body, "metadata": body["metadata"] | known}, namespace
    )
    assert again["metadata"]["uid"] != made["metadata"]["uid"]


async def test_apply_without_force_names_the_other_manager(
    client: KubeClient, namespace: str, api_cluster: "Cluster"
) -> None:
    await client.apply(CONFIG_MAP, config_map("one", a="1"), namespace)
    config = KubeConfig.load(api_cluster.kubeconfig)
    async with KubeClient(config, field_manager="other", user_agent="tests") as other:
        with pytest.raises(Conflict, match="tests"):
            await other.apply(CONFIG_MAP, config_map("one", a="2"), namespace, force=False)


async def test_already_exists_and_conflict_are_distinguished(
    client: KubeClient, namespace: str
) -> None:
    made = await client.create(CONFIG_MAP, config_map("one"), namespace)
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAP, config_map("one"), namespace)
    await client.merge_patch(CONFIG_MAP, "one", {"data": {"a": "1"}}, namespace)
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {}}
    with pytest.raises(Conflict) as caught:
        await client.merge_patch(CONFIG_MAP, "one", stale, namespace)
    assert not isinstance(caught.value, AlreadyExists)


async def test_preconditions_of_a_delete_hold(client: KubeClient, namespace: str) -> None:
    made = await client.create(CONFIG_MAP, config_map("one"), namespace)
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAP, "one", namespace, uid=str(uuid.uuid4()))
    await client.merge_patch(CONFIG_MAP, "one", {"data": {"a": "1"}}, namespace)
    with pytest.raises(Conflict):
        await client.delete(
            CONFIG_MAP,
            "one",
            namespace,
            uid=made["metadata"]["uid"],
            resource_version=made["metadata"]["resourceVersion"],
        )
    assert await client.get(CONFIG_MAP, "one", namespace)


async def test_what_the_server_refuses_is_named(client: KubeClient, namespace: str) -> None:
    with pytest.raises(Invalid, match=r"metadata\.name"):
        await client.create(CONFIG_MAP, config_map("No Name"), namespace)
    with pytest.raises(BadRequest, match="unknown field"):
        await client.create(CONFIG_MAP, {**config_map("one"), "colour": "red"}, namespace)
    with pytest.raises(NotFound):
        await client.create(CONFIG_MAP, config_map("one"), "no-such-namespace")


async def test_a_dry_run_keeps_nothing(client: KubeClient, namespace: str) -> None:
    await client.create(CONFIG_MAP, config_map("one"), namespace, dry_run=True)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAP, "one", namespace)


async def test_lists_come_in_chunks_of_one_state(client: KubeClient, namespace: str) -> None:
    for number in range(7):
        body = config_map(f"m{number}")
        body["metadata"]["labels"] = {"ours": "", "odd": str(number % 2)}
        await client.create(CONFIG_MAP, body, namespace)
    # The controller manager adds a ConfigMap of its own to each namespace, whenever it likes.
    ours = "ours"
    pages = [
        page
        async for page in client.list_pages(CONFIG_MAP, namespace, label_selector=ours, limit=3)
    ]
    names = [item["metadata"]["name"] for page in pages for item in page.items]
    assert len(pages) > 2
    assert names == [f"m{n}" for n in range(7)]
    assert len({page.resource_version for page in pages}) == 1
    then = pages[0].resource_version
    late = config_map("m7")
    late["metadata"]["labels"] = {"ours": ""}
    await client.create(CONFIG_MAP, late, namespace)
    earlier = [
        page
        async for page in client.list_pages(
            CONFIG_MAP, namespace, label_selector=ours, limit=3, at=then
        )
    ]
    assert [item["metadata"]["name"] for page in earlier for item in page.items] == names
    now = await client.list(CONFIG_MAP, namespace, label_selector=ours)
    assert len(now.items) == len(names) + 1
    odd = await client.list(CONFIG_MAP, namespace, label_selector="odd=1")
    assert {item["kind"] for item in odd.items} == {"ConfigMap"}
    assert [item["metadata"]["name"] for item in odd.items] == ["m1", "m3", "m5"]
    bare = await client.list(
        CONFIG_MAP, namespace, field_selector="metadata.name=m2", metadata_only=True
    )
    assert [item["kind"] for item in bare.items] == ["PartialObjectMetadata"]


@pytest.mark.parametrize("left", ["on the way", "unanswered"])
def test_nothing_is_left_of_watches_when_their_loop_ends(
    api_cluster: "Cluster", namespace: str, left: str
) -> None:
    """A loop that is closed at once closes no connection that waits for the server's farewell."""

    async def follow() -> None:
        config = KubeConfig.load(api_cluster.kubeconfig)
        async with KubeClient(config, field_manager="tests", user_agent="tests") as client:
            if left == "unanswered":
                await leave_unanswered(client, namespace)
                return
            made = await client.create(CONFIG_MAP, config_map("one"), namespace)
            begin = str(int(made["metadata"]["resourceVersion"]) - 1)
            watch = client.watch(CONFIG_MAP, namespace, resource_version=begin)
            assert (await anext(watch)).object["metadata"]["name"] == "one"
            await watch.aclose()

    loop = asyncio.new_event_loop()
    gc.collect()  # what earlier tests left is not this one's
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        loop.run_until_complete(follow())
        loop.close()
        gc.collect()
    assert [str(each.message) for each in seen] == []


async def leave_unanswered(client: KubeClient, namespace: str) -> None:
    """Cancel a watch that was requested and of which the server has not told anything yet."""
    version = (await client.list(CONFIG_MAP, namespace)).resource_version
    watching = asyncio.ensure_future(
        anext(client.watch(CONFIG_MAP, namespace, resource_version=version))
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def test_a_watch_yields_events_and_ends_in_time(client: KubeClient, namespace: str) -> None:
    begin = (await client.list(SECRET, namespace)).resource_version
    await client.create(SECRET, {"metadata": {"name": "s"}}, namespace)
    await client.merge_patch(SECRET, "s", {"metadata": {"labels": {"a": "b"}}}, namespace)
    await client.delete(SECRET, "s", namespace)
    seen = []
    async with aclosing(
        client.watch(SECRET, namespace, resource_version=begin, seconds=60)
    ) as watch:
        async for event in watch:
            seen.append(event)
            if event.type is WatchEventType.DELETED:
                break
    told = [each.type for each in seen if each.type is not WatchEventType.BOOKMARK]
    assert told == [WatchEventType.ADDED, WatchEventType.MODIFIED, WatchEventType.DELETED]
    end = seen[-1].object["metadata"]["resourceVersion"]
    async for event in client.watch(SECRET, namespace, resource_version=end, seconds=1):
        assert event.type is WatchEventType.BOOKMARK


async def test_credentials_and_impersonation_decide_about_authorization(
    client: KubeClient, namespace: str, api_cluster: "Cluster", tmp_path: Path
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(with_user(api_cluster.kubeconfig, {"token": "nobody"})))
    async with KubeClient(
        KubeConfig.load(path), field_manager="tests", user_agent="tests"
    ) as nobody:
        with pytest.raises(Unauthorized):
            await nobody.list(CONFIG_MAP, namespace)
    impersonating = yaml.safe_load(api_cluster.kubeconfig.read_text())
    impersonating["users"][0]["user"]["as"] = "somebody"
    for entry in (impersonating["users"][0]["user"], impersonating["clusters"][0]["cluster"]):
        for key in ("client-certificate", "client-key", "certificate-authority"):
            if key in entry:
                entry[key] = str(api_cluster.kubeconfig.parent / entry[key])
    path.write_text(yaml.safe_dump(impersonating))
    async with KubeClient(
        KubeConfig.load(path), field_manager="tests", user_agent="tests"
    ) as somebody:
        with pytest.raises(Forbidden, match="somebody"):
            await somebody.get(NAMESPACE, namespace)


async def test_a_server_of_another_authority_is_not_trusted(
    api_cluster: "Cluster", tmp_path: Path
) -> None:
    document = with_user(api_cluster.kubeconfig, {"token": "t"})
    cluster = document["clusters"][0]["cluster"]
    cluster.pop("certificate-authority", None)
    cluster.pop("certificate-authority-data", None)
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    async with KubeClient(
        KubeConfig.load(path), field_manager="tests", user_agent="tests"
    ) as strict:
        with pytest.raises(KubeError, match="certificate verify failed"):
            await strict.list(NAMESPACE)
    cluster["insecure-skip-tls-verify"] = True
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match="insecure-skip-tls-verify"):
        KubeConfig.load(path)


def with_user(kubeconfig: Path, user: dict[str, Any]) -> dict[str, Any]:
    """Return the kubeconfig with another user and paths that hold anywhere."""
    document: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = user
    cluster = document["clusters"][0]["cluster"]
    if "certificate-authority" in cluster:
        cluster["certificate-authority"] = str(kubeconfig.parent / cluster["certificate-authority"])
    return document
