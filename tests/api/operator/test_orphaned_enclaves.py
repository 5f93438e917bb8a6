"""No Enclave outlives its Container, whatever finalizer, propagation or orphaning was used.

There is no node: `tests.support.stand_ins.pod_status` writes the status of Pods, and a Pod that is
being deleted is gone at once.
"""

import json
from typing import Any

import pytest
import yaml

from cloister_crds.kinds import Enclave
from cloister_crds.names import config_map_name, gpu_claim_name
from tests.support.programs.operator import Installation, manifest
from tests.support.servers.git import Repository
from tests.support.stand_ins.pod_status import run_pod
from tests.support.waiting import until_sync

PATIENCE = 120.0


def serving(installation: Installation, name: str, **spec: str) -> Enclave:
    """Create a Container and wait until its Enclave serves."""
    installation.create_container(name, **{"repo": "acme/web", "tag": "v1", **spec})
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
        "configmaps": (config_map_name(name),),
        "resourceclaims": (gpu_claim_name(name, 0), gpu_claim_name(name, 1)),
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


def await_end(installation: Installation, enclave: Enclave) -> None:
    """Wait until nothing is left of an Enclave; the error names what is."""

    def ended() -> bool:
        left = left_of(installation, enclave)
        assert not left, left
        return True

    until_sync(ended, within=PATIENCE, what="the enclave's end")


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
    await_end(operated, enclave)
    assert operated.container(name) is not None
    patch(operated, "ctr", name, {"metadata": {"finalizers": None}})
    until_sync(lambda: operated.container(name) is None, within=PATIENCE, what="its end")


@pytest.mark.lifecycle("deleted")
def test_an_orphaned_enclave_ends(operated: Installation) -> None:
    enclave = serving(operated, "orphaned")
    delete(operated, "orphaned", "orphan")
    until_sync(lambda: operated.container("orphaned") is None, within=PATIENCE, what="its end")
    await_end(operated, enclave)


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


def with_gpus(installation: Installation) -> dict[str, str]:
    """Return a spec of an enclave with two ResourceClaims of GPUs, and permit it."""
    gpu = {"deviceClass": "gpu.example.com", "counts": [8]}
    host = manifest("Host", f"{installation.host}-gpus", {"gpu": gpu})
    installation.apply(host)
    entitled = {"hostSelection": True, "gpu": True}
    patch(installation, "org", installation.slug, {"spec": {"entitlements": entitled}})
    web = installation.repositories.path / "acme/web.git"
    document = yaml.safe_load(Repository(web).git("show", "v1:service-config.yml"))
    document["gpus"] = 8
    document["containers"][0] |= {"runtime": "nvidia", "gpus": "0,1"}
    repository = installation.repository("acme/gpus")
    repository.release("v1", yaml.safe_dump(document).encode())
    return {"repo": "acme/gpus", "host": host["metadata"]["name"]}


def test_a_pod_that_lost_its_enclave_ends(operated: Installation) -> None:
    """What the Pod used goes with it: its file, and its claims of GPUs."""
    enclave = serving(operated, "bare", **with_gpus(operated))
    assert len(left_of(operated, enclave)["resourceclaims"]) == 2
    where = ("-n", operated.namespace, "--wait=false")
    operated.kubectl("delete", "encl", enclave.metadata.name, "--cascade=orphan", *where)

    def ended() -> bool:
        left = left_of(operated, enclave)
        assert {"pods", "configmaps", "resourceclaims"}.isdisjoint(left), left
        return True

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
