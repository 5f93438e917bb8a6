"""The health of our objects in Flux and Argo CD: kstatus itself, and the check that we ship."""

import json
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from dev.cluster.binaries import binary
from tests.support.builders.container_states import STATES, body_of
from tests.support.clients.argo import health_of
from tests.support.programs.operator import Installation, file_text, manifest
from tests.support.waiting import until_sync

pytestmark = pytest.mark.programs("kstatus")
IMAGE = "registry.invalid/web@sha256:" + "ab" * 32
KINDS = ("ctr", "cdom", "csec", "cdep", "organization", "chost")


def kstatus(objects: Sequence[dict[str, Any]]) -> list[str]:
    """Return the status by the library that Flux uses."""
    done = subprocess.run(
        [binary("kstatus")],
        input=json.dumps(objects),
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return [each["status"] for each in json.loads(done.stdout)]


def test_flux_sees_the_observed_state() -> None:
    bodies = [body_of(make().container) for make, _, _ in STATES.values()]
    wanted = {state: word for state, (_, word, _) in STATES.items()}
    assert dict(zip(STATES, kstatus(bodies), strict=True)) == wanted


def test_flux_and_argo_agree_on_objects_of_the_server(installation: Installation) -> None:
    namespace = installation.namespace
    installation.create_container("web", repo="acme/web", tag="v9")
    installation.apply(
        manifest("Domain", "api", {"domain": "api.example.test"}, namespace),
        manifest("Secret", "key", {"name": "KEY", "secretRef": {"name": "none"}}, namespace),
    )
    fresh = bodies_of(installation, "ctr", "cdom", "csec")
    assert set(kstatus(fresh)) == {"InProgress"}
    assert {health_of(each)[0] for each in fresh} == {"Progressing"}

    installation.repository("acme/web").release("v1", file_text(IMAGE))
    installation.operator().wait_until_it_leads()
    installation.wait_for("web", "Stalled", reason="TagNotFound")
    installation.create_container("web", repo="acme/web", tag="v1", state="Stopped")
    installation.wait_for("web", "Ready", reason="Stopped")
    words = {"Healthy": "Current", "Progressing": "InProgress", "Degraded": "Failed"}

    def agreed() -> bool:
        bodies = bodies_of(installation, *KINDS)
        seen = [words[health_of(each)[0]] for each in bodies]
        found = kstatus(bodies)
        assert found == seen, list(zip(bodies, found, seen, strict=True))
        return {"Current", "Failed"} <= set(found)

    until_sync(agreed, within=60, what="what both say of everything")
    (stopped,) = bodies_of(installation, "ctr")
    assert (kstatus([stopped]), health_of(stopped)[0]) == (["Current"], "Healthy")
    # An Event follows the status that it reports.
    wanted = {("Warning", "TagNotFound"), ("Normal", "Stopped")}
    until_sync(lambda: events_about(installation, "Container") >= wanted, what="both Events")
    assert events_about(installation, "Container") == wanted
    described = installation.kubectl("describe", "ctr", "web", "-n", namespace)
    assert "TagNotFound" in described.partition("Events:")[2]


def bodies_of(installation: Installation, *kinds: str) -> list[dict[str, Any]]:
    """Read the objects of this installation as the server returns them."""
    bodies = []
    for kind in kinds:
        for body in installation.objects(f"{kind}", every=True):
            place = body["metadata"].get("namespace", body["metadata"]["name"])
            if place in {installation.namespace, installation.slug, installation.host}:
                bodies.append(body)
    return bodies


def events_about(installation: Installation, kind: str) -> set[tuple[str, str]]:
    """Return type and reason of the Events about a kind."""
    events = installation.objects("events.events.k8s.io")
    return {(each["type"], each["reason"]) for each in events if each["regarding"]["kind"] == kind}
