"""No Enclave outlives its Container, whatever finalizer, propagation or orphaning was used.

There is no node: `tests.support.stand_ins.pod_status` writes the status of Pods, and a Pod that is
being deleted is gone at once.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cloister_crds.kinds import Enclave
from dev.cluster import Cluster
from dev.cluster.images import Image, push
from tests.support.programs.operator import Installation, file_text, operator_lock
from tests.support.stand_ins.pod_status import run_pod
from tests.support.waiting import until_sync

PATIENCE = 60.0


@pytest.fixture(scope="module")
def operated(
    api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    with operator_lock(api_cluster.name):
        folder = tmp_path_factory.mktemp("installation")
        installation = Installation(api_cluster, folder, {"claimAgeSeconds": 1})
        try:
            installation.prepare()
            installation.create_organization()
            image = push(Image(files={"/x": b"x"}, entrypoint=("/x",)), api_cluster.registry, "x")
            installation.repository("acme/web").release("v1", file_text(image))
            installation.operator().wait_until_it_leads()
            yield installation
        finally:
            installation.end()


def serving(installation: Installation, name: str) -> Enclave:
    """Create a Container and wait until its Enclave serves."""
    installation.create_container(name, repo="acme/web", tag="v1")
    until_sync(lambda: installation.enclaves(name), within=PATIENCE, what="an Enclave")
    (enclave,) = installation.enclaves(name)
    run_pod(installation, enclave.metadata.name)
    installation.wait_for(name, "Available")
    return enclave


def left_of(installation: Installation, enclave: Enclave) -> dict[str, list[str]]:
    """Return the names of what is left of an Enclave and its Container's Service."""
    name, container = enclave.metadata.name, enclave.spec.container.name
    names = {
        "encl": (name,),
        "pods": (name,),
        "services": (container,),
        "configmaps": (f"{name}-config",),
    }
    found = {
        kind: [
            each["metadata"]["name"]
            for each in installation.objects(kind)
            if each["metadata"]["name"] in wanted
        ]
        for kind, wanted in names.items()
    }
    return {kind: left for kind, left in found.items() if left}


def patch(installation: Installation, kind: str, name: str, body: dict[str, Any]) -> None:
    where = () if kind == "org" else ("-n", installation.namespace)
    installation.kubectl("patch", kind, name, *where, "--type=merge", "-p", json.dumps(body))


def delete(installation: Installation, name: str, cascade: str) -> None:
    where = ("-n", installation.namespace, "--wait=false")
    installation.kubectl("delete", "ctr", name, f"--cascade={cascade}", *where)


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_a_finalizer_on_the_container_keeps_no_enclave(
    operated: Installation, cascade: str
) -> None:
    name = f"held-{cascade}"
    enclave = serving(operated, name)
    patch(operated, "ctr", name, {"metadata": {"finalizers": ["evil.example/keep"]}})
    delete(operated, name, cascade)
    until_sync(lambda: not left_of(operated, enclave), within=PATIENCE, what="the enclave's end")
    assert operated.container(name) is not None
    patch(operated, "ctr", name, {"metadata": {"finalizers": None}})
    until_sync(lambda: operated.container(name) is None, within=PATIENCE, what="its end")


def test_an_orphaned_enclave_ends(operated: Installation) -> None:
    enclave = serving(operated, "orphaned")
    delete(operated, "orphaned", "orphan")
    until_sync(lambda: operated.container("orphaned") is None, within=PATIENCE, what="its end")
    until_sync(lambda: not left_of(operated, enclave), within=PATIENCE, what="the enclave's end")


def test_an_enclave_of_an_earlier_container_of_the_name_ends(operated: Installation) -> None:
    first = serving(operated, "again")
    operated.kill_operator()
    delete(operated, "again", "orphan")
    until_sync(lambda: operated.container("again") is None, within=PATIENCE, what="its end")
    operated.create_container("again", repo="acme/web", tag="v1")
    operated.operator().wait_until_it_leads()

    def only_the_new_one() -> bool:
        uids = {each.metadata.uid for each in operated.enclaves("again")}
        return bool(uids) and first.metadata.uid not in uids

    until_sync(only_the_new_one, within=PATIENCE, what="the end of the earlier enclave")
    owners = {
        owner["uid"]
        for each in operated.objects("pods")
        for owner in each["metadata"].get("ownerReferences", ())
    }
    assert first.metadata.uid not in owners
    (second,) = operated.enclaves("again")
    run_pod(operated, second.metadata.name)
    operated.wait_for("again", "Available")


def test_a_pod_that_lost_its_enclave_ends(operated: Installation) -> None:
    enclave = serving(operated, "bare")
    where = ("-n", operated.namespace, "--wait=false")
    operated.kubectl("delete", "encl", enclave.metadata.name, "--cascade=orphan", *where)

    def ended() -> bool:
        return {"pods", "configmaps"}.isdisjoint(left_of(operated, enclave))

    until_sync(ended, within=PATIENCE, what="the end of the Pod")


@pytest.mark.parametrize("cascade", ["background", "orphan"])
def test_a_container_counts_until_its_last_pod_is_gone(
    operated: Installation, cascade: str
) -> None:
    operated.kubectl("delete", "ctr", "--all", "-n", operated.namespace)
    patch(operated, "org", operated.slug, {"spec": {"limits": {"containers": 1}}})
    pod = serving(operated, f"first-{cascade}").metadata.name
    # As a container whose stop_timeout has not passed.
    patch(operated, "pod", pod, {"metadata": {"finalizers": ["tests.example/terminates"]}})
    delete(operated, f"first-{cascade}", cascade)
    operated.create_container(f"next-{cascade}", repo="acme/web", tag="v1")
    waiting = operated.wait_for(f"next-{cascade}", "Stalled", reason="LimitReached")
    assert not operated.enclaves(f"next-{cascade}")
    assert waiting.status.active_enclave == ""
    patch(operated, "pod", pod, {"metadata": {"finalizers": None}})
    created = f"next-{cascade}"
    until_sync(lambda: operated.enclaves(created), within=PATIENCE, what="its Enclave")
    patch(operated, "org", operated.slug, {"spec": {"limits": {"containers": 10}}})
