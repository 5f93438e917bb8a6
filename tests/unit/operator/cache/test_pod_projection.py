"""The projection of a Pod as facts: names of the file, sidecars apart, times and exits."""

from datetime import UTC, datetime
from typing import Any

from cloister_crds.kinds.enclave import ContainerStateName
from cloister_operator.cache.pod_projection import node_is_gone, read_pod
from cloister_operator.enclave.built import SKIPPED_ANNOTATION
from cloister_operator.rollout.pod_facts import PodPhase


def pod(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "uid": "p",
            "annotations": {SKIPPED_ANNOTATION: '["models"]'},
        },
        "spec": {
            "nodeName": "n",
            "containers": [
                {"name": "agent", "restartPolicy": "Always", "readinessProbe": {}},
                {"name": "net", "restartPolicy": "Always"},
                {"name": "worker-1", "restartPolicy": "OnFailure", "readinessProbe": {}},
                {"name": "web", "restartPolicy": "Never"},
                {"name": "shim", "restartPolicy": "Always"},
            ],
        },
        "status": status,
    }


def test_containers_of_a_pod_without_status_are_waiting() -> None:
    facts = read_pod(pod(), ["web", "Worker_1"])
    assert facts.phase is PodPhase.PENDING
    assert [each.name for each in facts.containers] == ["web", "Worker_1"]
    assert facts.shim is not None
    assert facts.shim.name == "shim"
    assert facts.agent is not None
    assert facts.agent.name == "agent"
    assert [each.name for each in facts.sidecars] == ["net"]
    assert facts.skipped_stages == {"models"}
    assert {each.state for each in facts.containers} == {ContainerStateName.WAITING}


def test_states_and_exits() -> None:
    facts = read_pod(
        pod(
            phase="Running",
            podIPs=[{"ip": "fd00::1"}, {"ip": "10.0.0.7"}],
            containerStatuses=[
                {
                    "name": "worker-1",
                    "ready": True,
                    "restartCount": 2,
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                    "lastState": {"terminated": {"exitCode": 3, "reason": "Error"}},
                },
                {
                    "name": "web",
                    "state": {
                        "terminated": {
                            "exitCode": 137,
                            "reason": "OOMKilled",
                            "finishedAt": "2026-01-01T00:00:05Z",
                        }
                    },
                },
            ],
        ),
        ["web", "Worker_1"],
    )
    web, worker = facts.containers
    assert facts.address == "10.0.0.7"
    assert (web.exit_code, web.exit_reason, web.restarts) == (137, "OOMKilled", False)
    assert (worker.exit_code, worker.restart_count, worker.restarts) == (3, 2, True)
    assert web.ended_at == datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)
    assert worker.started_at is not None
    assert worker.ended_at is None
    assert worker.checked
    assert not web.checked


def test_reasons_why_a_pod_is_unschedulable_or_disrupted() -> None:
    facts = read_pod(
        pod(
            conditions=[
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/1 nodes",
                },
                {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
            ]
        ),
        ["web"],
    )
    assert facts.unschedulable == "0/1 nodes"
    assert facts.disruption == "PreemptionByScheduler"


def test_a_node_is_lost_when_it_is_deleted_or_its_pods_are_evicted() -> None:
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    silent = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    bound, leaving = pod(), pod()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    unbound = pod()
    unbound["spec"]["nodeName"] = ""
    assert node_is_gone(bound, None)
    assert not node_is_gone(bound, ready)
    assert not node_is_gone(bound, silent)
    assert node_is_gone(leaving, silent)
    assert not node_is_gone(unbound, None)


def test_an_annotation_of_somebody_else_is_ignored() -> None:
    body = pod()
    for text in ("{}", "[", "1"):
        body["metadata"]["annotations"][SKIPPED_ANNOTATION] = text
        assert read_pod(body, ["web", "Worker_1"]).skipped_stages == frozenset()
