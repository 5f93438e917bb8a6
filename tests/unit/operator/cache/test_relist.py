"""The comparison with the server: missed deletions, newer objects, dead watches."""

import asyncio
from typing import Any

import pytest

from cloister_clients.kube import KindRef, ListPage
from cloister_operator.cache.projections import CONTAINER, WATCHED_KINDS
from cloister_operator.cache.relist import Relister
from cloister_operator.cache.store import Store
from cloister_operator.telemetry.health import Liveness
from cloister_operator.telemetry.metrics import OperatorMetrics


def body(name: str, version: int, uid: str = "") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid or name,
            "resourceVersion": str(version),
        },
        "spec": {"repo": "a/b", "tag": "v1"},
    }


class Lists:
    """Returns lists as the test wants."""

    def __init__(self) -> None:
        self.items: tuple[dict[str, Any], ...] = ()
        self.version = 0
        self.asked = 0

    async def list(self, ref: KindRef, **_: object) -> ListPage:
        """Return the list."""
        assert ref == CONTAINER
        self.asked += 1
        return ListPage(self.items, str(self.version))


@pytest.fixture
def parts() -> tuple[Lists, Store, Liveness, Relister]:
    lists, store, liveness = Lists(), Store(), Liveness(stale=1000)
    relister = Relister(lists, store, OperatorMetrics(), liveness, every=300)  # type: ignore[arg-type]  # lists alone
    return lists, store, liveness, relister


def names(store: Store) -> list[str]:
    return sorted(each.name for each in store.entries(CONTAINER))


async def test_an_object_that_was_deleted_unseen_is_removed_from_the_store(
    parts: tuple[Lists, Store, Liveness, Relister],
) -> None:
    lists, store, _, relister = parts
    for name in ("one", "two"):
        store.put(CONTAINER, body(name, 5))
    lists.items, lists.version = (body("two", 5),), 9
    assert await relister.compare(CONTAINER) == 1
    assert names(store) == ["two"]


async def test_an_object_created_after_the_list_stays_in_the_store(
    parts: tuple[Lists, Store, Liveness, Relister],
) -> None:
    lists, store, _, relister = parts
    store.put(CONTAINER, body("new", 12))
    lists.version = 9
    assert await relister.compare(CONTAINER) == 0
    assert names(store) == ["new"]


async def test_an_object_of_the_same_name_is_another_object(
    parts: tuple[Lists, Store, Liveness, Relister],
) -> None:
    lists, store, _, relister = parts
    store.put(CONTAINER, body("web", 5, uid="first"))
    lists.items, lists.version = (body("web", 8, uid="second"),), 9
    assert await relister.compare(CONTAINER) == 1
    assert names(store) == []
    # Its event comes late, and is not taken for one from before the removal.
    assert store.put(CONTAINER, body("web", 8, uid="second"))


async def test_a_watch_that_lags_in_two_comparisons_is_reported(
    parts: tuple[Lists, Store, Liveness, Relister],
) -> None:
    lists, store, liveness, relister = parts
    lists.items, lists.version = (body("web", 8),), 9
    await relister.compare(CONTAINER)
    assert liveness.unhealthy_reason() == ""
    await relister.compare(CONTAINER)
    assert liveness.unhealthy_reason() == "the watch of containers is 1 objects behind"
    store.put(CONTAINER, body("web", 8))
    await relister.compare(CONTAINER)
    assert liveness.unhealthy_reason() == ""


def test_heartbeats_grow_stale() -> None:
    now = 0.0
    liveness = Liveness(stale=10, clock=lambda: now)
    liveness.heartbeat("workers")
    liveness.heartbeat("comparison", stale=100)
    now = 11.0
    assert liveness.unhealthy_reason() == "workers silent for 11 s"
    liveness.heartbeat("workers")
    assert liveness.unhealthy_reason() == ""


async def test_the_first_sync_lists_once_while_the_store_fills(
    parts: tuple[Lists, Store, Liveness, Relister],
) -> None:
    lists, store, liveness, _ = parts
    watched = tuple(each for each in WATCHED_KINDS if each.ref == CONTAINER)
    relister = Relister(lists, store, OperatorMetrics(), liveness, every=300, watched=watched)  # type: ignore[arg-type]  # lists alone
    lists.items, lists.version = (body("one", 5), body("two", 6)), 9
    store.put(CONTAINER, body("one", 5))
    syncing = asyncio.create_task(relister.sync())
    done, _ = await asyncio.wait({syncing}, timeout=0.3)
    assert not done
    store.put(CONTAINER, body("two", 6))
    await asyncio.wait_for(syncing, 30)
    assert relister.synced
    assert lists.asked == 1


async def test_the_first_sync_does_not_list_again_while_objects_arrive(
    parts: tuple[Lists, Store, Liveness, Relister], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large cluster takes longer to read than the sync waits for one object."""
    lists, store, liveness, _ = parts
    watched = tuple(each for each in WATCHED_KINDS if each.ref == CONTAINER)
    relister = Relister(lists, store, OperatorMetrics(), liveness, every=300, watched=watched)  # type: ignore[arg-type]  # lists alone
    bodies = [body(name, 5) for name in ("one", "two", "three", "four")]
    lists.items, lists.version = tuple(bodies), 9
    patience, looks, pause = 50, 0, asyncio.sleep

    async def look(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks % (patience - 10) == 0:
            store.put(CONTAINER, bodies.pop(0))
        await pause(0)

    monkeypatch.setattr(asyncio, "sleep", look)
    await relister.sync()
    assert looks > 2 * patience
    assert lists.asked == 1


async def test_an_object_deleted_before_we_lead_is_removed_by_the_sync(
    parts: tuple[Lists, Store, Liveness, Relister],
) -> None:
    lists, store, liveness, _ = parts
    watched = tuple(each for each in WATCHED_KINDS if each.ref == CONTAINER)
    relister = Relister(lists, store, OperatorMetrics(), liveness, every=300, watched=watched)  # type: ignore[arg-type]  # lists alone
    for name in ("one", "gone"):
        store.put(CONTAINER, body(name, 5))
    lists.items, lists.version = (body("one", 5),), 9
    await asyncio.wait_for(relister.sync(), 30)
    assert names(store) == ["one"]


async def test_the_sync_does_not_wait_for_an_object_that_was_deleted(
    parts: tuple[Lists, Store, Liveness, Relister], monkeypatch: pytest.MonkeyPatch
) -> None:
    lists, store, liveness, _ = parts
    monkeypatch.setattr("cloister_operator.cache.relist._PATIENCE", 0.2)
    watched = tuple(each for each in WATCHED_KINDS if each.ref == CONTAINER)
    relister = Relister(lists, store, OperatorMetrics(), liveness, every=300, watched=watched)  # type: ignore[arg-type]  # lists alone
    lists.items, lists.version = (body("gone", 5),), 9
    syncing = asyncio.create_task(relister.sync())
    done, _ = await asyncio.wait({syncing}, timeout=0.05)
    assert not done
    lists.items = ()
    await asyncio.wait_for(syncing, 30)
    assert lists.asked > 1
