"""The memory of reconciles: an entry lives as long as its object is in the informer cache."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cloister_crds.kinds import Enclave, Organization
from cloister_operator.cache.projections import ENCLAVE, ORGANIZATION
from cloister_operator.cache.reconcile_memory import ReconcileMemory
from cloister_operator.cache.store import Store
from cloister_operator.enclave.built import BuiltEnclave, build_enclave
from tests.support.builders.enclave_plans import SETTINGS, WEB, plan_of
from tests.support.builders.resources import container_of, enclave_of, organization_of

NAMESPACE = "org-acme"
BUILT = build_enclave(plan_of(WEB), SETTINGS)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def memory(store: Store) -> ReconcileMemory:
    return ReconcileMemory(store)


def cached_enclave(store: Store, *, uid: str = "u-1", version: int = 1) -> Enclave:
    """Put an Enclave into the cache as the server would send it."""
    body = enclave_of(container_of()).manifest()
    body["metadata"] |= {"namespace": NAMESPACE, "uid": uid, "resourceVersion": str(version)}
    store.put(ENCLAVE, body)
    return Enclave.read(body)


def cached_organization(store: Store) -> Organization:
    body: dict[str, Any] = organization_of().manifest()
    body["metadata"] |= {"uid": "u-org", "resourceVersion": "1"}
    store.put(ORGANIZATION, body)
    return Organization.read(body)


def built_of(enclave: Enclave, *, file: bytes = b"") -> BuiltEnclave:
    """Return an Enclave as it is before its Pod is created, with a file of some size."""
    return replace(BUILT, plan=replace(BUILT.plan, enclave=enclave, file=file))


def remember_all(memory: ReconcileMemory, enclave: Enclave) -> None:
    """Remember everything that reconciles remember of an Enclave."""
    state = memory.attempt(enclave)
    state.children_complete, state.missing_api = True, "lacks"
    memory.keep_built(built_of(enclave))
    memory.defer_status(enclave, timedelta(seconds=1), 1.0)


def test_nothing_remains_of_an_enclave_that_left_the_cache(
    store: Store, memory: ReconcileMemory
) -> None:
    for number in range(100):
        enclave = cached_enclave(store, uid=f"u-{number}", version=3 * number + 1)
        remember_all(memory, enclave)
        assert len(memory) == 3
        store.remove(ENCLAVE, NAMESPACE, enclave.metadata.name, 3 * number + 2)
        assert len(memory) == 0


def test_nothing_remains_of_an_enclave_that_another_of_its_name_replaced(
    store: Store, memory: ReconcileMemory
) -> None:
    remember_all(memory, cached_enclave(store, uid="old", version=1))
    new = cached_enclave(store, uid="new", version=2)
    assert len(memory) == 0
    assert memory.attempt(new).children_complete is None
    assert memory.take_built(new) is None


def test_a_change_of_the_object_keeps_its_entry(store: Store, memory: ReconcileMemory) -> None:
    remember_all(memory, cached_enclave(store, version=1))
    changed = cached_enclave(store, version=2)
    assert memory.attempt(changed).children_complete is True
    assert memory.take_built(changed) is not None


def test_a_reconcile_that_outlasts_its_enclave_leaves_no_entry(
    store: Store, memory: ReconcileMemory
) -> None:
    enclave = cached_enclave(store)
    state = memory.attempt(enclave)
    store.remove(ENCLAVE, NAMESPACE, enclave.metadata.name, 2)
    state.children_complete = True
    remember_all(memory, enclave)
    assert len(memory) == 0


def test_a_built_enclave_is_handed_on_once(store: Store, memory: ReconcileMemory) -> None:
    enclave = cached_enclave(store)
    built = built_of(enclave)
    memory.keep_built(built)
    assert memory.take_built(enclave) is built
    assert memory.take_built(enclave) is None


def test_built_enclaves_are_bounded(store: Store, memory: ReconcileMemory) -> None:
    body = enclave_of(container_of()).manifest()
    for number in range(3000):
        meta = {"namespace": NAMESPACE, "uid": f"u-{number}", "resourceVersion": "1"}
        body["metadata"] |= {"name": f"web-{number}", **meta}
        store.put(ENCLAVE, body)
        enclave = Enclave.read(body)
        memory.keep_built(built_of(enclave, file=b"#" * 65536))
    # Of 64 MiB the last is left out for what an Enclave takes in addition to its file.
    assert len(memory) == 63
    assert memory.take_built(enclave) is not None


def test_an_enclave_that_is_larger_than_the_bound_is_built_again(
    store: Store, memory: ReconcileMemory
) -> None:
    enclave = cached_enclave(store)
    memory.keep_built(built_of(enclave, file=b"#" * 5 * 1024**2))
    assert memory.take_built(enclave) is None


def test_guards_are_remembered_until_a_resync_or_the_end_of_the_organization(
    store: Store, memory: ReconcileMemory
) -> None:
    organization = cached_organization(store)
    memory.organization(organization).applied["NetworkPolicy cloister"] = "{}"
    memory.forget_applied()
    assert memory.organization(organization).applied == {}
    store.remove(ORGANIZATION, "", organization.metadata.name, 2)
    assert len(memory) == 0


def test_a_status_waits_since_it_first_differed(store: Store, memory: ReconcileMemory) -> None:
    enclave, delay = cached_enclave(store), timedelta(seconds=2)
    assert memory.defer_status(enclave, delay, 10.0) == delay
    assert memory.defer_status(enclave, delay, 11.5) == timedelta(seconds=0.5)
    assert memory.defer_status(enclave, delay, 12.0) is None
    memory.forget_deferred(enclave)
    assert memory.defer_status(enclave, delay, 13.0) == delay
