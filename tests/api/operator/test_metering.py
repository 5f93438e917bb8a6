"""The finalizer of metering at a real API server: it waits, reports that, and is removed.

No API runs here. There is no node: `tests.support.stand_ins.pod_status` writes the status of Pods.
"""

from typing import Any

import pytest

from cloister_crds.kinds import Enclave
from cloister_crds.lifecycle.metering import FINALIZER
from cloister_crds.lifecycle.state.conditions import condition
from dev.cluster import Cluster
from dev.cluster.images import Image, push
from tests.support.programs.operator import Installation, file_text
from tests.support.stand_ins.pod_status import run_pod
from tests.support.waiting import until_sync

PATIENCE = 90.0
WAIT = 24
"""Seconds until the finalizer is removed; for the second half the Enclave reports why it waits."""


@pytest.fixture
def image(api_cluster: Cluster) -> str:
    return push(Image(files={"/x": b"x"}, entrypoint=("/x",)), api_cluster.registry, "tests/x")


def only(installation: Installation) -> Enclave:
    enclaves = until_sync(lambda: installation.enclaves("web"), within=60, what="an Enclave")
    assert enclaves
    assert len(enclaves) == 1
    return enclaves[0]


def named(installation: Installation, name: str) -> Enclave | None:
    return next((e for e in installation.enclaves("web") if e.metadata.name == name), None)


def test_an_enclave_that_is_not_metered_waits_reports_it_and_is_deleted(
    installation: Installation, image: str
) -> None:
    installation.repository("acme/web").release("v1", file_text(image))
    installation.settings |= {"metering": True, "meteringWaitSeconds": WAIT}
    operator = installation.operator()
    operator.wait_until_it_leads()
    installation.create_container("web", repo="acme/web", tag="v1")
    first = only(installation)
    name = first.metadata.name
    assert first.metadata.finalizers == (FINALIZER,)
    run_pod(installation, name)
    installation.wait_for("web", "Available")

    def promoted() -> bool:
        found = named(installation, name)
        return found is not None and found.status.promoted_at is not None

    until_sync(promoted, within=PATIENCE, what="the time of its promotion")
    where = ("-n", installation.namespace)
    installation.kubectl("delete", "encl", name, *where, "--wait=false")

    def reported() -> Enclave | None:
        found = named(installation, name)
        assert found is not None, "it went before it said why it waits"
        return found if condition(found.status.conditions, "Metered") else None

    waiting = until_sync(reported, within=PATIENCE, every=0.3, what="why it waits")
    assert waiting is not None
    why = condition(waiting.status.conditions, "Metered")
    assert why is not None
    assert why.reason == "AwaitingMetering"
    assert "see that the API runs" in why.message
    demoted, deleted = waiting.status.demoted_at, waiting.metadata.deletion_timestamp
    assert demoted is not None
    assert deleted is not None
    assert demoted >= deleted
    # Its successor is created meanwhile, under a name of its own.
    until_sync(lambda: len(installation.enclaves("web")) == 2, within=WAIT / 2, what="both")
    until_sync(lambda: named(installation, name) is None, within=PATIENCE, what="its end")

    def warned() -> list[dict[str, Any]]:
        everything = installation.objects("events.v1.events.k8s.io")
        return [each for each in everything if each.get("reason") == "RunTimeLost"]

    events = until_sync(warned, within=30, what="the warning")
    assert events
    (event,) = events
    assert (event["type"], event["regarding"]["name"]) == ("Warning", name)
    assert "has not metered" in event["note"]


def test_without_metering_no_enclave_waits(installation: Installation, image: str) -> None:
    installation.repository("acme/web").release("v1", file_text(image))
    installation.settings["metering"] = True
    operator = installation.operator()
    operator.wait_until_it_leads()
    installation.create_container("web", repo="acme/web", tag="v1")
    first = only(installation)
    assert first.metadata.finalizers == (FINALIZER,)
    operator.stop()
    installation.settings["metering"] = False
    installation.operator().wait_until_it_leads()
    name = first.metadata.name
    installation.kubectl("delete", "encl", name, "-n", installation.namespace, "--wait=false")

    def ended() -> bool:
        # Its successor may have the name, which is free again, before anybody looks.
        found = named(installation, name)
        return found is None or found.metadata.uid != first.metadata.uid

    until_sync(ended, within=PATIENCE, what="its end")
    assert only(installation).metadata.finalizers == ()
