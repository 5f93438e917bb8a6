"""The order of Containers: as their places in the store say, whatever comes and goes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cloister_operator.cache.departed_containers import ContainerOrder
from cloister_operator.cache.projections import CONTAINER
from cloister_operator.cache.store import Store

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["org-a", "org-b"]),
        st.sampled_from(["one", "two", "three"]),
        st.integers(0, 3),
        st.sampled_from(["put", "delete", "gone"]),
    ),
    max_size=30,
)
"""Namespace, name, minute of creation, and what happens."""


def container(
    namespace: str, name: str, minute: int, version: int, *, deleting: bool
) -> dict[str, Any]:
    """Return a Container as the server sends it; its uid follows from its creation."""
    created = f"2026-11-28T00:{minute:02}:00Z"
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": created}
    metadata |= {"uid": f"{name}-{minute}", "resourceVersion": str(version)}
    if deleting:
        metadata["deletionTimestamp"] = created
    return {"metadata": metadata, "spec": {"repo": "acme/web"}}


@given(CHANGES)
def test_the_order_is_that_of_what_is_cached(changes: list[tuple[str, str, int, str]]) -> None:
    store = Store()
    order = ContainerOrder(store)
    for version, (namespace, name, minute, what) in enumerate(changes, 1):
        if what == "gone":
            store.remove(CONTAINER, namespace, name, version)
        else:
            body = container(namespace, name, minute, version, deleting=what == "delete")
            store.put(CONTAINER, body)
        for each in ("org-a", "org-b"):
            places = sorted(one.place for one in store.entries(CONTAINER, each) if one.place)
            assert [order.of(each).before(place) for place in places] == list(range(len(places)))
            assert all(uid in order.of(each) for _, uid in places)
            assert bool(order.of(each)) is bool(places)
