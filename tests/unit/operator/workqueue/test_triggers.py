"""Which keys a change enqueues, how soon, and with which priority."""

from collections import Counter
from typing import Any, ClassVar

import msgspec
import pytest
from typing_extensions import override

from cloister_clients.kube.kinds import NODE, POD, SERVICE, KindRef
from cloister_operator.cache.projections import (
    CONTAINER,
    DEPLOYMENT,
    DOMAIN,
    ENCLAVE,
    HOST,
    ORGANIZATION,
    SECRET_KIND,
)
from cloister_operator.cache.store import CachedObject, Store, StoreChange
from cloister_operator.workqueue.triggers import COUNTS_DELAY, Key, is_low_priority, triggers_of

PAUSE = COUNTS_DELAY.total_seconds()
SPECS: dict[KindRef, dict[str, Any]] = {
    ORGANIZATION: {"namespace": "org-acme"},
    DEPLOYMENT: {"repo": "acme/web"},
    SECRET_KIND: {"secretRef": {"name": "a", "key": "b"}},
}


class TriggeredStore:
    """A store, and the keys that the last change enqueued."""

    def __init__(self) -> None:
        self.store = Store()
        self.store.subscribe(self._changed)
        self.enqueued: dict[Key, float] = {}
        self._version = 0

    def _changed(self, change: StoreChange) -> None:
        self.enqueued = dict(triggers_of(change, self.store))

    def put(self, ref: KindRef, *, annotations: dict[str, str] | None = None, **parts: Any) -> None:
        """Let an object appear, or change."""
        self._version += 1
        metadata: dict[str, Any] = {
            "name": "one",
            "uid": "u",
            "resourceVersion": str(self._version),
            "annotations": annotations or {},
        }
        if ref.namespaced:
            metadata["namespace"] = "org-acme"
        self.store.put(ref, {"metadata": metadata, **parts})


def key(ref: KindRef) -> Key:
    return Key(ref.kind, "org-acme" if ref.namespaced else "", "one")


@pytest.mark.parametrize("ref", SPECS)
def test_a_new_object_is_enqueued_at_once(ref: KindRef) -> None:
    watched = TriggeredStore()
    watched.put(ref, spec=SPECS[ref])
    assert watched.enqueued[key(ref)] == 0


@pytest.mark.parametrize("ref", SPECS)
def test_a_status_of_counts_enqueues_its_object_debounced(ref: KindRef) -> None:
    watched = TriggeredStore()
    watched.put(ref, spec=SPECS[ref])
    watched.put(ref, spec=SPECS[ref], status={"counts": {"ready": 1}})
    assert watched.enqueued[key(ref)] == PAUSE


@pytest.mark.parametrize("ref", SPECS)
def test_a_changed_spec_is_enqueued_at_once(ref: KindRef) -> None:
    watched = TriggeredStore()
    watched.put(ref, spec=SPECS[ref])
    watched.put(ref, spec={**SPECS[ref], "more": "x"})
    assert watched.enqueued[key(ref)] == 0


def test_a_requested_check_of_a_deployment_is_enqueued_at_once() -> None:
    watched = TriggeredStore()
    watched.put(DEPLOYMENT, spec=SPECS[DEPLOYMENT])
    annotations = {"cloister.dev/requested-at": "now"}
    watched.put(DEPLOYMENT, spec=SPECS[DEPLOYMENT], annotations=annotations)
    assert watched.enqueued[key(DEPLOYMENT)] == 0


def container(
    name: str, phase: str, namespace: str = "org-acme", **metadata: Any
) -> dict[str, Any]:
    place = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}
    return {"metadata": place | metadata, "spec": {"repo": "acme/web"}, "status": {"phase": phase}}


def test_a_deleted_container_enqueues_those_alone_that_wait_for_its_place() -> None:
    watched = TriggeredStore()
    for body in (
        container("ready", "ready"),
        container("stopped", "stopped"),
        container("failed", "failed"),
        container("pending", "pending"),
        container("ending", "stopping", deletionTimestamp="2026-01-01T00:00:00Z"),
        container("elsewhere", "pending", "org-other"),
    ):
        watched.store.put(CONTAINER, body)
    watched.store.remove(CONTAINER, "org-acme", "ready", 2)
    names = {each.name for each in watched.enqueued if each.kind == "Container"}
    assert names == {"ready", "failed", "pending"}
    watched.put(HOST, spec={})
    names = {each.name for each in watched.enqueued if each.kind == "Container"}
    assert names == {"failed", "pending", "elsewhere"}


def test_a_deleted_container_enqueues_the_services_that_it_left() -> None:
    watched = TriggeredStore()
    watched.store.put(CONTAINER, container("gone", "ready"))
    for name, namespace, owners in (
        ("left", "org-acme", []),
        ("owned", "org-acme", [{"uid": "another"}]),
        ("elsewhere", "org-other", []),
    ):
        place = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}
        spec: dict[str, Any] = {"selector": {}, "ports": []}
        watched.store.put(SERVICE, {"metadata": place | {"ownerReferences": owners}, "spec": spec})
    watched.store.remove(CONTAINER, "org-acme", "gone", 2)
    services = {each.name for each in watched.enqueued if each.kind == "Service"}
    assert services == {"left"}


@pytest.mark.parametrize(("of", "waiting"), [("earlier", {"web", "pending"}), ("web", {"web"})])
def test_the_end_of_a_pod_enqueues_who_waits_unless_its_container_goes_on(
    of: str, waiting: set[str]
) -> None:
    """A Container of the same name that came later does not go on for the one before it."""
    watched = TriggeredStore()
    watched.store.put(CONTAINER, container("web", "deploying"))
    watched.store.put(CONTAINER, container("pending", "pending"))
    place = {"name": "web-a-1", "namespace": "org-acme", "uid": "a", "resourceVersion": "1"}
    spec = {"container": {"name": "web", "uid": of}}
    watched.store.put(ENCLAVE, {"metadata": place, "spec": spec})
    watched.store.put(POD, {"metadata": place, "spec": {}})
    watched.store.remove(POD, "org-acme", "web-a-1", 2)
    assert {each.name for each in watched.enqueued if each.kind == "Container"} == waiting


def entry(ref: KindRef) -> CachedObject:
    return CachedObject(ref, "org-acme", "one", "u", 1, (), b"{}")


@pytest.mark.parametrize(
    ("ref", "before", "name", "waits"),
    [
        (CONTAINER, False, "one", True),
        (CONTAINER, True, "one", False),
        (CONTAINER, True, "other", True),
        (ENCLAVE, False, "other", False),
        (HOST, True, "other", True),
        (DEPLOYMENT, False, "other", True),
    ],
)
def test_new_containers_and_those_of_shared_objects_have_low_priority(
    ref: KindRef, *, before: bool, name: str, waits: bool
) -> None:
    known = entry(ref)
    change = StoreChange(ref, "org-acme", "one", known if before else None, known)
    assert is_low_priority(change, Key("Container", "org-acme", name)) is waits


def test_other_kinds_have_normal_priority() -> None:
    change = StoreChange(HOST, "", "one", None, entry(HOST))
    assert not is_low_priority(change, Key("Host", "", "one"))


class CountedObject(CachedObject):
    """An object of the cache that counts how often it is decoded."""

    decoded: ClassVar[Counter[int]] = Counter()

    @override
    def decode(self) -> dict[str, Any]:
        """Decode it, and count that by its version."""
        self.decoded[self.version] += 1
        return super().decode()


@pytest.mark.parametrize("ref", [CONTAINER, DEPLOYMENT, DOMAIN, HOST, NODE, SECRET_KIND])
def test_each_version_of_a_change_is_decoded_once_at_most(ref: KindRef) -> None:
    def version(number: int) -> CountedObject:
        body = {
            "metadata": {"name": "one"},
            "spec": {"repo": "acme/web", "domain": f"{number}.example"},
            "status": {"phase": str(number)},
            "nodeLabels": {},
        }
        return CountedObject(ref, "org-acme", "one", "u", number, (), msgspec.json.encode(body))

    CountedObject.decoded.clear()
    change = StoreChange(ref, "org-acme", "one", version(1), version(2))
    list(triggers_of(change, Store()))
    assert CountedObject.decoded == {1: 1, 2: 1}
