"""The Event of an object whose conditions changed."""

from datetime import UTC, datetime
from typing import Any

from cloister_operator.cache.projections import CONTAINER, ENCLAVE, HOST
from cloister_operator.writer.events import build_event

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


def test_enclaves_post_no_events_of_their_own() -> None:
    assert build_event(ENCLAVE, None, body("PodLost"), NOW) is None


def test_a_long_note_of_an_event_is_cut_between_two_characters() -> None:
    event = build_event(CONTAINER, None, body("BootFailed", "a" + "\u00e4" * 600), NOW)
    assert event is not None
    assert event["note"] == "a" + "\u00e4" * 511
