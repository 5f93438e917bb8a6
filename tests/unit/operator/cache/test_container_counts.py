"""Containers by state: counted at each change of the informer cache, none is left over."""

from typing import Any

from cloister_operator.cache.departed_containers import ContainerCounts
from cloister_operator.cache.projections import CONTAINER
from cloister_operator.cache.store import Store
from cloister_operator.telemetry.metrics import CountedState, OperatorMetrics


def container(version: int, **status: Any) -> dict[str, Any]:
    """Return a Container as the server sends it."""
    metadata = {"name": "web", "namespace": "org-acme", "uid": "1", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"repo": "acme/web"}, "status": status}


def condition(type_: str, reason: str, status: str = "True") -> dict[str, str]:
    """Return a condition."""
    return {"type": type_, "status": status, "reason": reason}


def test_a_container_is_counted_in_its_present_state_alone() -> None:
    store = Store()
    counts = ContainerCounts(store)
    store.put(CONTAINER, container(1))
    assert counts() == {CountedState("org-acme", "deploying", "", stalled=False): 1}
    waiting = [condition("Ready", "Progressing", "False"), condition("Stalled", "TagNotFound")]
    store.put(CONTAINER, container(2, phase="failed", conditions=waiting))
    assert counts() == {CountedState("org-acme", "failed", "TagNotFound", stalled=True): 1}
    ready = [condition("Ready", "Ready"), condition("Stalled", "Ready", "False")]
    store.put(CONTAINER, container(3, phase="ready", conditions=ready))
    assert counts() == {CountedState("org-acme", "ready", "Ready", stalled=False): 1}
    store.remove(CONTAINER, "org-acme", "web", 4)
    assert counts() == {}


def test_the_state_is_a_metric() -> None:
    store, metrics = Store(), OperatorMetrics()
    metrics.observe_containers(ContainerCounts(store))
    stalled = condition("Stalled", "LimitReached")
    store.put(CONTAINER, container(1, phase="pending", conditions=[stalled]))
    labels = {
        "organization_namespace": "org-acme",
        "status": "pending",
        "reason": "LimitReached",
        "stalled": "true",
    }
    assert metrics.registry.get_sample_value("cloister_containers", labels) == 1
