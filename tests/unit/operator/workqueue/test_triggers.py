"""Which keys a change wakes, and how soon."""

from typing import Any

import pytest

from cloister_clients.kube.kinds import KindRef
from cloister_operator.cache.projections import (
    CONTAINER,
    DEPLOYMENT,
    ENCLAVE,
    HOST,
    ORGANIZATION,
    SECRET_KIND,
)
from cloister_operator.cache.store import CachedObject, Store, StoreChange
from cloister_operator.workqueue.keys import Key
from cloister_operator.workqueue.triggers import COUNTS_DELAY, is_low_priority, triggers_of

PAUSE = COUNTS_DELAY.total_seconds()
SPECS: dict[KindRef, dict[str, Any]] = {
    ORGANIZATION: {"namespace": "org-acme"},
    DEPLOYMENT: {"repo": "acme/web"},
    SECRET_KIND: {"secretRef": {"name": "a", "key": "b"}},
}


class TriggeredStore:
    """A store, and the keys that the last change woke."""

    def __init__(self) -> None:
        self.store = Store()
        self.store.subscribe(self._changed)
        self.woken: dict[Key, float] = {}
        self._version = 0

    def _changed(self, change: StoreChange) -> None:
        self.woken = dict(triggers_of(change, self.store))

    def put(self, ref: KindRef, *, annotations: dict[str, str] | None = None, **parts: Any) -> None:
        """Let an object come, or change."""
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
def test_a_new_object_is_looked_at_at_once(ref: KindRef) -> None:
    watched = TriggeredStore()
    watched.put(ref, spec=SPECS[ref])
    assert watched.woken[key(ref)] == 0


@pytest.mark.parametrize("ref", SPECS)
def test_its_own_counts_do_not_hasten_the_next_ones(ref: KindRef) -> None:
    watched = TriggeredStore()
    watched.put(ref, spec=SPECS[ref])
    watched.put(ref, spec=SPECS[ref], status={"counts": {"ready": 1}})
    assert watched.woken[key(ref)] == PAUSE


@pytest.mark.parametrize("ref", SPECS)
def test_another_spec_is_looked_at_at_once(ref: KindRef) -> None:
    watched = TriggeredStore()
    watched.put(ref, spec=SPECS[ref])
    watched.put(ref, spec={**SPECS[ref], "more": "x"})
    assert watched.woken[key(ref)] == 0


def test_who_asks_for_a_look_at_a_deployment_gets_one_at_once() -> None:
    watched = TriggeredStore()
    watched.put(DEPLOYMENT, spec=SPECS[DEPLOYMENT])
    annotations = {"cloister.dev/requested-at": "now"}
    watched.put(DEPLOYMENT, spec=SPECS[DEPLOYMENT], annotations=annotations)
    assert watched.woken[key(DEPLOYMENT)] == 0


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
def test_new_containers_and_those_of_shared_objects_may_wait(
    ref: KindRef, *, before: bool, name: str, waits: bool
) -> None:
    known = entry(ref)
    change = StoreChange(ref, "org-acme", "one", known if before else None, known)
    assert is_low_priority(change, Key("Container", "org-acme", name)) is waits


def test_other_kinds_do_not_wait_behind_containers() -> None:
    change = StoreChange(HOST, "", "one", None, entry(HOST))
    assert not is_low_priority(change, Key("Host", "", "one"))
