"""How a container is: conditions in words, enclaves, managers and Events."""

from typing import Any

import pytest

from cloister_api.cache import CachedEnclave, owners_of, project_enclave
from cloister_api.records.container import manager_records
from cloister_api.records.container_status import (
    candidate_of,
    condition_record,
    event_record,
    status_record,
)
from cloister_api.schemas.container_responses import ManagerResponse
from cloister_api.services.containers.refusals import api_field
from cloister_crds.kinds.meta import Condition
from cloister_crds.lifecycle.state.reasons import REASONS
from tests.unit.api.records.test_container import fields_of, held

AT = "2026-11-22T05:00:00Z"


def condition(reason: str, message: str = "") -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": AT,
    }


def enclave(status: dict[str, Any]) -> CachedEnclave:
    return project_enclave(
        {
            "metadata": {"name": "web-a-1", "namespace": "org-acme", "uid": "e1"},
            "spec": {
                "container": {"name": "web", "uid": "u1"},
                "request": {"repo": "team/web", "tag": "v1"},
                "revision": "a",
                "attempt": 2,
                "repo": "team/web",
                "tag": "v1",
                "commit": "9f" * 20,
                "configDigest": f"sha256:{'0' * 64}",
                "configFile": "service-config.yml",
                "summary": {"cpus": 2, "memoryMB": 8192, "containers": ["web"]},
                "host": "small",
            },
            "status": status,
        }
    )


def test_a_fresh_container_has_nothing_to_tell() -> None:
    assert fields_of(status_record(held(status={"observedGeneration": 0}), None, None, [])) == {
        "id": "u1",
        "status": "deploying",
        "observed": False,
        "conditions": [],
        "history": [],
        "unenforced": [],
        "managed_by": [],
    }


def test_conditions_say_what_their_reason_means_in_the_words_of_the_api() -> None:
    given = condition("TagNotFound", "spec.tag: there is no v9")
    shown = fields_of(condition_record(Condition.model_validate(given)))
    assert shown == {
        "type": "Ready",
        "status": "False",
        "reason": "TagNotFound",
        "message": "tag: there is no v9",
        "since": AT,
        "meaning": REASONS["TagNotFound"].meaning,
        "remedy": "Push the tag or correct tag.",
    }
    later = fields_of(condition_record(Condition.model_validate(condition("OfALaterRelease"))))
    assert "meaning" not in later
    assert "remedy" not in later


def test_enclaves_show_their_stages_and_containers() -> None:
    status = {
        "phase": "Started",
        "bootStages": [
            {"name": "config", "status": "ok", "durationMs": 12},
            {"name": "network", "status": "pending", "detail": "waits"},
        ],
        "containers": [
            {
                "name": "web",
                "state": "Waiting",
                "healthy": False,
                "restartCount": 3,
                "exitCode": 1,
                "message": "CrashLoopBackOff",
            }
        ],
        "measurement": f"sha256:{'1' * 64}",
        "startedAt": AT,
    }
    shown = fields_of(status_record(held(), None, enclave(status), []))
    assert "serving" not in shown
    assert shown["candidate"] == {
        "enclave": "web-a-1",
        "revision": "a",
        "attempt": 2,
        "tag": "v1",
        "commit": "9f" * 20,
        "config_digest": f"sha256:{'0' * 64}",
        "host": "small",
        "boot_stages": [
            {"name": "config", "status": "ok", "duration_ms": 12},
            {"name": "network", "status": "pending", "detail": "waits"},
        ],
        "containers": [
            {
                "name": "web",
                "state": "Waiting",
                "restart_count": 3,
                "healthy": False,
                "exit_code": 1,
                "message": "CrashLoopBackOff",
            }
        ],
        "phase": "Started",
        "measurement": f"sha256:{'1' * 64}",
        "started_at": AT,
    }


def test_history_and_the_newest_release_are_shown() -> None:
    status: dict[str, Any] = {
        "history": [
            {"enclave": "web-a-1", "tag": "v1", "commit": "c", "outcome": "Failed", "at": AT}
        ],
        "latestRelease": {"tag": "v2", "commit": "d", "publishedAt": AT, "followed": True},
        "unenforced": ["pids_limit"],
        "observedGeneration": 1,
    }
    later = {"startedAt": AT, "readyAt": AT, "promotedAt": AT, "reason": "R", "measurement": "m"}
    status["history"] += [{**status["history"][0], **later}]
    shown = fields_of(status_record(held(status=status), None, None, []))
    # An entry of an earlier release has no times.
    assert shown["history"][0] == status["history"][0]
    named = {"started_at": AT, "ready_at": AT, "promoted_at": AT, "reason": "R", "measurement": "m"}
    assert shown["history"][1] == {**status["history"][0], **named}
    assert shown["latest_release"] == {
        "tag": "v2",
        "commit": "d",
        "published_at": AT,
        "followed": True,
    }
    assert (shown["unenforced"], shown["observed"]) == (["pids_limit"], True)


UPDATE = {
    "enclave": "web-b-1",
    "revision": "b",
    "tag": "v2",
    "status": "failed",
    "type": "blue_green",
}


@pytest.mark.parametrize(
    ("status", "name"),
    [
        ({}, ""),
        ({"candidate": "web-c-1"}, "web-c-1"),
        ({"update": UPDATE}, "web-b-1"),
        ({"update": UPDATE, "candidate": "web-c-1"}, "web-c-1"),
    ],
)
def test_the_enclave_of_a_failed_update_is_the_candidate(status: dict[str, Any], name: str) -> None:
    assert candidate_of(held(status=status).container.status) == name


def test_gitops_tools_are_named_with_their_fields_as_the_api_calls_them() -> None:
    def of(manager: str, *fields: str) -> dict[str, Any]:
        return {"manager": manager, "fieldsV1": {"f:spec": {f"f:{each}": {} for each in fields}}}

    managed = [of("flux", "tag", "host", "customDomain"), of("kubectl", "repo"), of("argo")]
    owners = owners_of({"metadata": {"managedFields": managed}})
    assert manager_records(owners, ("flux", "argo", "helm"), api_field) == [
        ManagerResponse(manager="flux", fields=["custom_domain", "host_name", "tag"])
    ]


EVENT = {
    "metadata": {"creationTimestamp": AT},
    "eventTime": "2026-11-22T05:00:01.500000Z",
    "type": "Warning",
    "reason": "TagNotFound",
    "note": "spec.tag: there is no v9",
}


def test_an_event_is_shown_with_its_last_time_and_count() -> None:
    assert fields_of(event_record(EVENT)) == {
        "at": "2026-11-22T05:00:01.500000Z",
        "type": "Warning",
        "reason": "TagNotFound",
        "message": "tag: there is no v9",
        "count": 1,
    }
    series = {"lastObservedTime": "2026-11-22T06:00:00.000000Z", "count": 7}
    repeated = fields_of(event_record({**EVENT, "series": series}))
    assert (repeated["at"][:16], repeated["count"]) == ("2026-11-22T06:00", 7)
    old = {"metadata": {"creationTimestamp": AT}, "deprecatedLastTimestamp": AT, "eventTime": None}
    shown = fields_of(event_record({**old, "deprecatedCount": 2}))
    assert (shown["at"][:19], shown["type"], shown["count"]) == (AT[:19], "Normal", 2)
