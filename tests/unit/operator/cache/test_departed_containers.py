"""Pods of Containers that are gone: found until they end, and only those."""

from typing import Any

from cloister_clients.kube.kinds import POD, KindRef
from cloister_operator.cache.departed_containers import DepartedContainers
from cloister_operator.cache.projections import CONTAINER, ENCLAVE
from cloister_operator.cache.store import Store

NAMESPACE = "org-acme"


class Cluster:
    """A store whose objects appear and end, and the Containers of it that are gone."""

    def __init__(self) -> None:
        self.store = Store()
        self.departed = DepartedContainers(self.store)
        self._version = 0

    def _put(self, ref: KindRef, name: str, uid: str, **body: Any) -> None:
        self._version += 1
        metadata = {
            "name": name,
            "namespace": NAMESPACE,
            "uid": uid,
            "resourceVersion": str(self._version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"cloister.dev/container": "web"},
        }
        self.store.put(ref, {"metadata": metadata, **body})

    def container(self, uid: str) -> None:
        """Let the Container appear, or another one of its name."""
        self._put(CONTAINER, "web", uid, spec={"repo": "acme/web"})

    def enclave(self, name: str, container: str) -> None:
        """Let an Enclave of a Container with a uid appear."""
        spec = {"container": {"name": "web", "uid": container}}
        self._put(ENCLAVE, name, f"enclave {name}", spec=spec)

    def pod(self, name: str) -> None:
        """Let the Pod of an Enclave appear."""
        self._put(POD, name, f"pod {name}", spec={"containers": []})

    def gone(self, ref: KindRef, name: str) -> None:
        """Let an object end."""
        self._version += 1
        self.store.remove(ref, NAMESPACE, name, self._version)

    def left(self) -> list[str]:
        """Return the names of the Pods whose Container is gone."""
        return sorted(each.name for each in self.departed.pods(NAMESPACE))


def serving() -> Cluster:
    cluster = Cluster()
    cluster.container("1")
    cluster.enclave("web-a-1", "1")
    cluster.pod("web-a-1")
    assert cluster.left() == []
    return cluster


def test_a_pod_is_found_from_the_end_of_its_container_to_its_own() -> None:
    cluster = serving()
    cluster.gone(CONTAINER, "web")
    assert cluster.left() == ["web-a-1"]
    cluster.gone(ENCLAVE, "web-a-1")
    assert cluster.left() == ["web-a-1"]
    cluster.gone(POD, "web-a-1")
    assert cluster.left() == []


def test_another_container_of_the_name_is_not_taken_for_the_first() -> None:
    cluster = serving()
    cluster.container("2")
    cluster.enclave("web-b-1", "2")
    cluster.pod("web-b-1")
    assert cluster.left() == ["web-a-1"]
    cluster.gone(POD, "web-a-1")
    cluster.gone(ENCLAVE, "web-a-1")
    assert cluster.left() == []


def test_a_container_that_was_gone_before_the_cache_was_filled_is_found() -> None:
    cluster = Cluster()
    cluster.pod("web-a-1")
    cluster.enclave("web-a-1", "1")
    assert cluster.left() == ["web-a-1"]


def test_the_order_in_which_the_cache_is_filled_does_not_matter() -> None:
    cluster = Cluster()
    cluster.enclave("web-a-1", "1")
    cluster.pod("web-a-1")
    cluster.container("1")
    assert cluster.left() == []


def test_a_name_is_looked_at_only_while_something_is_left() -> None:
    """Thousands of Containers end without a Pod of another one being looked at for them."""
    cluster = serving()
    cluster.gone(CONTAINER, "web")
    cluster.gone(POD, "web-a-1")
    cluster.gone(ENCLAVE, "web-a-1")
    early = Cluster()
    early.enclave("web-a-1", "1")
    early.container("1")
    assert [vars(each.departed)["_names"] for each in (cluster, early)] == [{}, {}]


def test_a_pod_that_starts_after_the_end_of_its_container_is_found() -> None:
    """The Pod of an Enclave may be created while the end of the Container is not known yet."""
    cluster = Cluster()
    cluster.container("1")
    cluster.enclave("web-a-1", "1")
    cluster.gone(CONTAINER, "web")
    assert cluster.left() == []
    cluster.pod("web-a-1")
    assert cluster.left() == ["web-a-1"]
