"""The informer cache: the newest version wins, indexes follow, removed objects stay removed."""

from typing import Any

from cloister_clients.kube.kinds import POD
from cloister_operator.cache.projections import CLAIM, CONTAINER, ENCLAVE, domain_index
from cloister_operator.cache.store import Store, StoreChange


def container(
    name: str = "web", *, version: int = 1, uid: str = "u", **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid,
            "resourceVersion": str(version),
            "managedFields": [{"manager": "kubectl"}],
            "annotations": {"cloister.dev/paused": "true", "kubectl.kubernetes.io/x": "long"},
        },
        "spec": {"repo": "a/b", "tag": "v1", **spec},
    }


def test_an_older_event_changes_nothing() -> None:
    store, changes = Store(), list[StoreChange]()
    store.subscribe(changes.append)
    assert store.put(CONTAINER, container(version=5, tag="new"))
    assert not store.put(CONTAINER, container(version=4, tag="old"))
    assert not store.put(CONTAINER, container(version=5, tag="old"))
    entry = store.get(CONTAINER, "ns", "web")
    assert entry is not None
    assert entry.decode()["spec"]["tag"] == "new"
    assert len(changes) == 1


def test_only_a_projection_is_kept() -> None:
    store = Store()
    store.put(CONTAINER, container())
    entry = store.get(CONTAINER, "ns", "web")
    assert entry is not None
    metadata = entry.decode()["metadata"]
    assert "managedFields" not in metadata
    assert metadata["annotations"] == {"cloister.dev/paused": "true"}


def test_a_late_event_does_not_bring_a_removed_object_back() -> None:
    store = Store()
    store.put(CONTAINER, container(version=5))
    assert store.remove(CONTAINER, "ns", "web", 6)
    assert not store.put(CONTAINER, container(version=5))
    assert store.get(CONTAINER, "ns", "web") is None
    assert store.put(CONTAINER, container(version=7, uid="another"))


def test_a_newer_object_is_not_removed() -> None:
    store = Store()
    store.put(CONTAINER, container(version=9))
    assert not store.remove(CONTAINER, "ns", "web", 8)
    assert store.count(CONTAINER) == 1


def test_indexes_follow_their_objects() -> None:
    store = Store()
    claim: dict[str, Any] = {
        "metadata": {"name": "h.example", "uid": "c", "resourceVersion": "1"},
        "spec": {"holder": {"namespace": "ns", "name": "web"}},
    }
    store.put(CLAIM, claim)
    assert [each.name for each in store.by_index(CLAIM, "holder", "ns/web")] == ["h.example"]
    moved = {**claim, "spec": {"holder": {"namespace": "ns", "name": "api"}}}
    moved["metadata"] = {**moved["metadata"], "resourceVersion": "2"}
    store.put(CLAIM, moved)
    assert store.by_index(CLAIM, "holder", "ns/web") == ()
    store.remove(CLAIM, "", "h.example", 3)
    assert store.by_index(CLAIM, "holder", "ns/api") == ()


def test_a_container_is_found_by_each_domain_that_it_requests_keeps_or_serves() -> None:
    store = Store()
    body = container(customDomain="new.example")
    kept = {"request": {"customDomain": "kept.example"}}
    body["status"] = {"domain": "old.example", "keptRequest": kept}
    store.put(CONTAINER, body)

    def found(domain: str) -> list[str]:
        return [e.name for e in store.by_index(CONTAINER, "domain", domain_index("ns", domain))]

    for domain in ("new.example", "kept.example", "old.example"):
        assert found(domain) == ["web"]
    store.put(CONTAINER, container(version=2, customDomain="new.example"))
    assert (found("new.example"), found("old.example"), found("kept.example")) == (["web"], [], [])
    store.remove(CONTAINER, "ns", "web", 3)
    assert found("new.example") == []


def test_a_pod_keeps_neither_environment_nor_commands() -> None:
    store = Store()
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "p", "resourceVersion": "1"},
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "web", "restartPolicy": "Always", "env": [{"name": "SECRET"}]}],
        },
        "status": {"phase": "Running"},
    }
    store.put(POD, pod)
    entry = store.get(POD, "ns", "p")
    assert entry is not None
    assert b"SECRET" not in entry.data
    assert [each.name for each in store.by_index(POD, "node", "n")] == ["p"]
    assert list(store.entries(ENCLAVE)) == []
