"""Writes name the cached version: what another leader wrote meanwhile stays."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from cloister_clients.kube import AlreadyExists, Conflict, KindRef, KubeClient, NotFound
from cloister_clients.kube.kinds import NETWORK_POLICY, POD, SERVICE
from cloister_operator.cache.projections import ENCLAVE
from cloister_operator.cache.store import Store
from cloister_operator.telemetry.metrics import OperatorMetrics
from cloister_operator.workqueue.triggers import Key
from cloister_operator.writer import ClusterWriter, LeadershipLost

KEY = Key("Container", "org-a", "web")
POLICY = {"metadata": {"name": "cloister", "namespace": "org-a"}, "spec": {}}
Object = dict[str, Any]


class Server:
    """Holds objects and their versions, as the client sees them."""

    def __init__(self) -> None:
        self.objects: dict[tuple[KindRef, str], Object] = {}
        self.calls: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None
        """What others do right after a read."""

    def keep(self, ref: KindRef, name: str, version: int, **parts: Any) -> Object:
        """Have an object in a version."""
        metadata = {"name": name, "namespace": "org-a", "uid": f"uid-{name}"}
        body = {"kind": ref.kind, "metadata": metadata | {"resourceVersion": str(version)}, **parts}
        self.objects[ref, name] = body
        return body

    async def create(self, ref: KindRef, body: Object) -> Object:
        """Create an object, or refuse."""
        self.calls.append("create")
        name = body["metadata"]["name"]
        if (ref, name) in self.objects:
            raise AlreadyExists(409, "AlreadyExists", "it is there")
        return self.keep(ref, name, 1, spec=body.get("spec", {}))

    async def apply(self, ref: KindRef, body: Object) -> Object:
        """Change an object, if it is the named version; create it, unless a uid is named."""
        self.calls.append("apply")
        name = body["metadata"]["name"]
        if (ref, name) not in self.objects:
            if "uid" in body["metadata"]:
                raise Conflict(409, "Conflict", "no object has this uid")
            return self.keep(ref, name, 1, spec=body["spec"])
        return self._change(ref, name, body["metadata"].get("resourceVersion"), spec=body["spec"])

    async def merge_patch(
        self, ref: KindRef, name: str, patch: Object, namespace: str | None, *, subresource: str
    ) -> Object:
        """Change the status, if it is the named version."""
        self.calls.append(f"patch {subresource} {namespace}")
        version = patch.get("metadata", {}).get("resourceVersion")
        return self._change(ref, name, version, status=patch["status"])

    async def get(self, ref: KindRef, name: str, namespace: str | None) -> Object:
        """Read an object."""
        self.calls.append(f"get {namespace}")
        found = self.objects.get((ref, name))
        self.meanwhile()
        if found is None:
            raise NotFound(404, "NotFound", "it is not there")
        return found

    async def delete(self, ref: KindRef, name: str, namespace: str | None, **_: Any) -> Object:
        """Delete an object, whose end others may have finished."""
        self.calls.append(f"delete {namespace}")
        body = self.objects.pop((ref, name))
        self.meanwhile()
        return self.objects.get((ref, name), body)

    def _change(self, ref: KindRef, name: str, version: str | None, **parts: Any) -> Object:
        before = self.objects.get((ref, name))
        known = "0" if before is None else before["metadata"]["resourceVersion"]
        if version is not None and version != known:
            raise Conflict(409, "Conflict", "it has changed")
        spec = {} if before is None else {"spec": before["spec"]}
        return self.keep(ref, name, int(known) + 1, **(spec | parts))


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def writer(server: Server, store: Store) -> ClusterWriter:
    return ClusterWriter(cast("KubeClient", server), store, OperatorMetrics())


def service(enclave: str) -> Object:
    return {
        "metadata": {"name": "web", "namespace": "org-a"},
        "spec": {"selector": {"enclave": enclave}},
    }


async def test_an_object_that_is_not_known_is_created(
    server: Server, writer: ClusterWriter
) -> None:
    await writer.apply(KEY, SERVICE, service("one"))
    assert server.calls == ["create"]


async def test_a_late_creation_does_not_change_the_object_of_another_leader(
    server: Server, store: Store, writer: ClusterWriter
) -> None:
    theirs = server.keep(SERVICE, "web", 7, spec={"selector": {"enclave": "two"}})
    with pytest.raises(AlreadyExists):
        await writer.apply(KEY, SERVICE, service("one"))
    assert server.objects[SERVICE, "web"] is theirs
    await writer.read_uncertain(KEY)
    entry = store.get(SERVICE, "org-a", "web")
    assert entry is not None
    assert entry.version == 7


async def test_a_deleted_object_without_a_version_is_gone(
    server: Server, store: Store, writer: ClusterWriter
) -> None:
    """The API server returns an empty object when the last step of its end was another's."""
    store.put(POD, server.keep(POD, "web", 3))
    empty = {"kind": "Pod", "apiVersion": "v1", "metadata": {}}
    server.meanwhile = lambda: server.objects.update({(POD, "web"): empty})
    await writer.delete(KEY, POD, "org-a", "web", uid="uid-web")
    assert store.get(POD, "org-a", "web") is None


async def test_a_late_apply_does_not_undo_another_write(
    server: Server, store: Store, writer: ClusterWriter
) -> None:
    store.put(SERVICE, server.keep(SERVICE, "web", 3, spec={"selector": {"enclave": "one"}}))
    theirs = server.keep(SERVICE, "web", 4, spec={"selector": {"enclave": "two"}})
    with pytest.raises(Conflict):
        await writer.apply(KEY, SERVICE, service("one"))
    assert server.objects[SERVICE, "web"] is theirs
    await writer.read_uncertain(KEY)
    await writer.apply(KEY, SERVICE, service("three"))
    assert server.objects[SERVICE, "web"]["spec"]["selector"] == {"enclave": "three"}


@pytest.mark.parametrize("ref", [SERVICE, NETWORK_POLICY])
async def test_a_late_apply_does_not_bring_back_what_is_gone(
    server: Server, store: Store, writer: ClusterWriter, ref: KindRef
) -> None:
    body = server.keep(ref, "web", 3, spec={})
    if ref in store.kinds:
        store.put(ref, body)
        del server.objects[ref, "web"]
    server.meanwhile = lambda: server.objects.pop((ref, "web"), None)
    with pytest.raises(Conflict):
        await writer.apply(KEY, ref, service("one"))
    assert not server.objects


async def test_a_late_status_does_not_undo_another_status(
    server: Server, store: Store, writer: ClusterWriter
) -> None:
    spec = {"container": {"name": "web", "uid": "c"}}
    store.put(ENCLAVE, server.keep(ENCLAVE, "e", 3, spec=spec, status={}))
    server.keep(ENCLAVE, "e", 4, spec=spec, status={"phase": "Failed"})
    with pytest.raises(Conflict):
        await writer.patch_status(KEY, ENCLAVE, "org-a", "e", {"status": {"phase": "Ready"}})
    assert server.objects[ENCLAVE, "e"]["status"] == {"phase": "Failed"}


async def test_an_object_that_is_not_watched_is_read_before_it_is_written(
    server: Server, writer: ClusterWriter
) -> None:
    await writer.apply(KEY, NETWORK_POLICY, POLICY)
    await writer.apply(KEY, NETWORK_POLICY, POLICY)
    assert server.calls == ["get org-a", "create", "get org-a", "apply"]


@pytest.mark.parametrize("version", [None, 3])
async def test_a_late_write_of_an_unwatched_object_does_not_undo_another(
    server: Server, writer: ClusterWriter, version: int | None
) -> None:
    if version is not None:
        server.keep(NETWORK_POLICY, "cloister", version, spec={})
    server.meanwhile = lambda: server.keep(NETWORK_POLICY, "cloister", 4, spec={"by": "another"})
    with pytest.raises(Conflict if version else AlreadyExists):
        await writer.apply(KEY, NETWORK_POLICY, POLICY)
    assert server.objects[NETWORK_POLICY, "cloister"]["spec"] == {"by": "another"}


async def test_the_lease_is_checked_after_the_read(server: Server, store: Store) -> None:
    leads = [True]
    writer = ClusterWriter(
        cast("KubeClient", server), store, OperatorMetrics(), leads=lambda: leads[0]
    )
    server.meanwhile = lambda: leads.__setitem__(0, False)
    with pytest.raises(LeadershipLost):
        await writer.apply(KEY, NETWORK_POLICY, POLICY)
    assert server.calls == ["get org-a"]


async def test_nothing_is_written_without_the_lease(server: Server, store: Store) -> None:
    writer = ClusterWriter(
        cast("KubeClient", server), store, OperatorMetrics(), leads=lambda: False
    )
    with pytest.raises(LeadershipLost):
        await writer.apply(KEY, SERVICE, service("one"))
    assert not server.calls
