"""The Event of an object whose conditions changed."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from cloister_clients.kube import KindRef
from cloister_operator.cache.projections import CONTAINER, ENCLAVE, HOST
from cloister_operator.writer import build_event

NOW = datetime(2026, 3, 1, 12, 0, 0, 250, tzinfo=UTC)


def body(reason: str, message: str = "It is so.", *, namespace: str = "org-acme") -> dict[str, Any]:
    """Build an object whose condition Ready has a reason."""
    ready = {
        "type": "Ready",
        "status": "False",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-03-01T12:00:00Z",
        "reason": reason,
        "message": message,
    }
    metadata = {"name": "web", "uid": "u-1", "resourceVersion": "17"}
    place = {"namespace": namespace} if namespace else {}
    return {"metadata": metadata | place, "status": {"conditions": [ready]}}


def test_an_event_names_its_object() -> None:
    event = build_event(CONTAINER, body("Deploying"), body("ImagePull", "It cannot."), NOW)
    assert event is not None
    assert event["metadata"] == {"name": "u-1.17", "namespace": "org-acme"}
    assert event["regarding"] == {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": "Container",
        "name": "web",
        "namespace": "org-acme",
        "uid": "u-1",
    }
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "ImagePull", "It cannot.")
    assert event["eventTime"] == "2026-03-01T12:00:00.000250Z"


def test_an_event_about_a_cluster_wide_object_is_in_default() -> None:
    event = build_event(HOST, None, body("RuntimeClassMissing", namespace=""), NOW)
    assert event is not None
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["regarding"]


def test_an_unchanged_or_minor_condition_posts_no_event() -> None:
    same = body("ImagePull")
    assert build_event(CONTAINER, same, body("ImagePull", "In other words."), NOW) is None
    assert build_event(CONTAINER, same, body("Deploying"), NOW) is None
    assert build_event(CONTAINER, same, {"metadata": same["metadata"]}, NOW) is None


def container(reason: str, **status: Any) -> dict[str, Any]:
    """Build a Container with a reason of Ready and further fields of status."""
    found = body(reason, f"Now {reason}.")
    found["status"] |= status
    return found


def served(name: str, outcome: str = "Served") -> dict[str, Any]:
    """Build an entry of the history."""
    return {"enclave": name, "tag": "v1.0.0", "outcome": outcome}


def told(before: dict[str, Any], after: dict[str, Any], kind: KindRef = CONTAINER) -> str:
    """Return the reason of the Event; empty = there is none."""
    event = build_event(kind, before, after, NOW)
    return event["reason"] if event else ""


def test_a_pull_that_is_tried_again_posts_no_second_deploying() -> None:
    pulls = container("ImagePull", candidate="web-a-1")
    again = container("Deploying", candidate="web-a-1")
    assert told(pulls, again) == ""
    assert told(pulls, container("Deploying", candidate="web-a-2")) == "Deploying"


def test_what_served_before_has_drained() -> None:
    before = container("Serving", activeEnclave="web-b-1")
    after = container("Serving", activeEnclave="web-b-1", history=[served("web-a-1")])
    event = build_event(CONTAINER, before, after, NOW)
    assert event is not None
    assert (event["type"], event["reason"]) == ("Normal", "Drained")
    assert event["note"] == "Enclave web-a-1 with tag v1.0.0 has drained and is deleted."
    ends = container("Stopping", history=[served("web-a-1")])
    assert told(before, ends) == ""


def test_what_failed_has_not_drained() -> None:
    before = container("Serving", activeEnclave="web-b-1")
    after = container("Serving", activeEnclave="web-b-1", history=[served("web-a-1", "Failed")])
    assert told(before, after) == ""


def enclave(**status: Any) -> dict[str, Any]:
    """Build an Enclave with a status."""
    metadata = {"name": "web-a-1", "namespace": "org-acme", "uid": "u-2", "resourceVersion": "5"}
    spec = {"tag": "v1.0.0", "hostnames": ["web.acme.example", "generated.example"]}
    return {"metadata": metadata, "spec": spec, "status": status}


def test_the_normal_life_of_an_enclave() -> None:
    ready = {"phase": "Ready", "readyAt": "2026-03-01T12:00:00Z"}
    life = [
        enclave(phase="Pending"),
        enclave(phase="Started"),
        enclave(**ready, serving=False),
        enclave(**ready, serving=True),
        enclave(**ready, serving=False),
    ]
    assert [told(*each, ENCLAVE) for each in pairwise(life)] == [
        "",
        "Healthy",
        "Serving",
        "Draining",
    ]
    event = build_event(ENCLAVE, life[1], life[3], NOW)
    assert event is not None
    assert event["regarding"]["kind"] == "Enclave"
    assert event["note"] == "Tag v1.0.0 serves at web.acme.example."


def test_what_is_wrong_with_an_enclave_is_reported_by_its_container() -> None:
    ready = enclave(phase="Ready", serving=True)
    lost = {**body("PodLost"), "spec": {}}
    lost["status"] |= {"phase": "Failed", "serving": False}
    assert told(ready, lost, ENCLAVE) == ""


def test_a_long_note_of_an_event_is_cut_between_two_characters() -> None:
    event = build_event(CONTAINER, None, body("BootFailed", "a" + "\u00e4" * 600), NOW)
    assert event is not None
    assert event["note"] == "a" + "\u00e4" * 511
