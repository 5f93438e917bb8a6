"""A container subscription that lapses: what serves continues, and nothing new starts.

There is no node: `tests.support.stand_ins.pod_status` writes the status of Pods.
"""

import json

import pytest

from cloister_crds.kinds import Enclave
from cloister_crds.kinds.container import ContainerPhase
from dev.cluster import Cluster
from dev.cluster.images import Image, push
from tests.support.programs.operator import Installation, condition_of, file_text
from tests.support.stand_ins.pod_status import run_pod
from tests.support.waiting import until_sync


@pytest.fixture
def image(api_cluster: Cluster) -> str:
    return push(Image(files={"/x": b"x"}, entrypoint=("/x",)), api_cluster.registry, "tests/x")


def subscribe(installation: Installation, *, wanted: bool) -> None:
    """Start the subscription or let it lapse, and wait until the operator knows of it."""
    patch = {"spec": {"billing": {"containerSubscription": wanted}}}
    name = f"organizations.cloister.dev/{installation.slug}"
    installation.kubectl("patch", name, "--type=merge", "-p", json.dumps(patch))

    def seen() -> bool:
        body = json.loads(installation.kubectl("get", name, "-o", "json"))
        return bool(body["status"]["observedGeneration"] == body["metadata"]["generation"])

    until_sync(seen, what="the operator knows of the subscription")


def newest(installation: Installation, name: str, *, but: str = "") -> Enclave:
    """Wait for an Enclave of a Container that is not a certain one."""

    def found() -> Enclave | None:
        own = [each for each in installation.enclaves(name) if each.metadata.name != but]
        return own[0] if own else None

    enclave = until_sync(found, within=60, what=f"an Enclave of {name}")
    assert enclave is not None
    return enclave


def waits_for_a_subscription(installation: Installation, name: str) -> None:
    """Wait until a Container reports that it does not start without a subscription."""

    def reported() -> bool:
        container = installation.container(name)
        assert container is not None
        ready = condition_of(container, "Ready")
        return ready is not None and (ready["status"], ready["reason"]) == (
            "False",
            "SubscriptionRequired",
        )

    until_sync(reported, within=60, what=f"{name} waits for a subscription")


def serves_by(installation: Installation, name: str) -> str:
    """Return which Enclave a Container serves by; empty = it does not."""
    container = installation.container(name)
    assert container is not None
    available = condition_of(container, "Available")
    if available is None or available["status"] != "True":
        return ""
    assert container.status.phase is ContainerPhase.READY
    return container.status.active_enclave or ""


@pytest.mark.spec("22.16")
def test_without_a_subscription_nothing_new_starts(installation: Installation, image: str) -> None:
    installation.repository("acme/web").release("v1", file_text(image))
    operator = installation.operator()
    operator.wait_until_it_leads()
    installation.create_container("web", repo="acme/web", tag="v1")
    first = newest(installation, "web").metadata.name
    run_pod(installation, first)
    installation.wait_for("web", "Available")

    subscribe(installation, wanted=False)
    installation.create_container("late", repo="acme/web", tag="v1")
    waits_for_a_subscription(installation, "late")
    assert installation.enclaves("late") == []
    assert serves_by(installation, "web") == first

    # An operator that starts now finds the same state, and stops nothing either.
    operator.stop()
    installation.operator().wait_until_it_leads()
    installation.create_container("later", repo="acme/web", tag="v1")
    waits_for_a_subscription(installation, "later")
    assert serves_by(installation, "web") == first
    assert [each["metadata"]["name"] for each in installation.objects("pods")] == [first]

    # A Pod that is lost is replaced, whoever pays.
    where = ("-n", installation.namespace)
    installation.kubectl("delete", "pod", first, *where, "--force", "--grace-period=0")
    second = newest(installation, "web", but=first).metadata.name
    run_pod(installation, second)
    until_sync(lambda: serves_by(installation, "web") == second, within=60, what="its successor")
    assert installation.enclaves("late") == []

    subscribe(installation, wanted=True)
    for name in ("late", "later"):
        run_pod(installation, newest(installation, name).metadata.name)
        installation.wait_for(name, "Available")
    assert serves_by(installation, "web") == second
