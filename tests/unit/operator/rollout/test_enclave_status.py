"""The status of an attempt: each course of a Pod, and what must not be mistaken for one."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cloister_crds.config.effective import health_allowance
from cloister_crds.config.model import Healthcheck
from cloister_crds.kinds.enclave import ContainerStateName, Enclave, EnclavePhase, EnclaveStatus
from cloister_crds.kinds.meta import ConditionStatus
from cloister_crds.lifecycle.state.conditions import condition, holds
from cloister_operator.rollout.enclave_status import (
    PodAction,
    evaluate_enclave,
    is_under_way,
    pod_action,
    reevaluate_after,
)
from cloister_operator.rollout.pod_facts import PodContainer, PodFacts, PodPhase
from tests.support.builders.attempts import BORN, fresh, pod_of, up, verdict
from tests.support.builders.resources import NOW, SETTINGS, container_of, enclave_of
from tests.support.builders.world import UNHEALTHY

FAILED = EnclavePhase.FAILED
ENDED = ContainerStateName.TERMINATED
WAITING = ContainerStateName.WAITING


@pytest.mark.parametrize("before", [None, EnclavePhase.PENDING, EnclavePhase.STARTED])
@pytest.mark.parametrize("after", list(EnclavePhase))
def test_only_news_of_an_attempt_under_way_may_come_late(
    before: EnclavePhase | None, after: EnclavePhase
) -> None:
    statuses = EnclaveStatus(phase=before), EnclaveStatus(phase=after)
    late = {EnclavePhase.PENDING, EnclavePhase.STARTED, EnclavePhase.READY}
    assert is_under_way(*statuses) is (after in late)


@pytest.mark.parametrize("before", [EnclavePhase.READY, FAILED, EnclavePhase.ENDED])
def test_news_of_an_attempt_that_was_ready_or_is_over_comes_at_once(before: EnclavePhase) -> None:
    assert not is_under_way(EnclaveStatus(phase=before), EnclaveStatus(phase=EnclavePhase.STARTED))


def test_without_an_address_of_the_api_it_says_what_it_waits_for() -> None:
    missing = "The host of apiAddress has no IPv4 address."
    status = evaluate_enclave(fresh(), None, NOW, SETTINGS, missing=missing)
    assert (status.phase, status.reason) == (EnclavePhase.PENDING, "ApiUnreachable")
    assert status.message == missing
    late = NOW + SETTINGS.progress_deadline * 2
    given_up = evaluate_enclave(fresh(), None, late, SETTINGS, missing=missing)
    assert given_up.reason == "ProgressDeadlineExceeded"
    assert given_up.message.endswith(missing)
    assert evaluate_enclave(fresh(), pod_of(up()), NOW, SETTINGS, missing=missing).reason == ""


def test_an_expired_certificate_is_a_condition_until_it_is_renewed() -> None:
    def status_with(message: str) -> EnclaveStatus:
        car = PodContainer("certificate", ContainerStateName.RUNNING, exit_message=message)
        pod = replace(pod_of(up(ready=True)), sidecars=(car,))
        serving = fresh().model_copy(update={"status": EnclaveStatus(phase=EnclavePhase.READY)})
        return evaluate_enclave(serving, pod, NOW, SETTINGS)

    status = status_with("CertificateExpired: it expired at 2026-11-28T00:00:00Z: nobody signs")
    assert (status.phase, status.reason) == (EnclavePhase.READY, "")
    assert holds(status.conditions, "Ready")
    found = condition(status.conditions, "CertificateValid")
    assert found is not None
    assert (found.status, found.reason) == (ConditionStatus.FALSE, "CertificateExpired")
    assert "expired at 2026-11-28T00:00:00Z: nobody signs." in found.message
    for other in ("", "the API returned 503"):
        assert condition(status_with(other).conditions, "CertificateValid") is None


def test_without_a_pod_it_is_pending() -> None:
    status = verdict(fresh(), None)
    assert status.phase is EnclavePhase.PENDING
    assert status.observed_generation == 1
    assert holds(status.conditions, "Reconciling")
    ready = condition(status.conditions, "Ready")
    assert ready is not None
    assert ready.status is ConditionStatus.FALSE


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        (pod_of(), EnclavePhase.READY),
        (pod_of(phase=PodPhase.PENDING), EnclavePhase.PENDING),
        (pod_of(PodContainer(name="web")), EnclavePhase.PENDING),
        (pod_of(shim=PodContainer(name="shim")), EnclavePhase.PENDING),
        (pod_of(up(), PodContainer(name="job")), EnclavePhase.PENDING),
        (pod_of(agent=up("agent", ready=False)), EnclavePhase.STARTED),
        (pod_of(shim=up("shim", ready=False)), EnclavePhase.STARTED),
        (pod_of(up(checked=True, ready=False)), EnclavePhase.READY),
        (pod_of(agent=None), EnclavePhase.STARTED),
        (pod_of(up(), up("job", state=ENDED, exit_code=0, ready=False)), EnclavePhase.READY),
        (pod_of(up(ready=False)), EnclavePhase.READY),
        (pod_of(shim=None), EnclavePhase.READY),
        (
            pod_of(up(), up("job", state=WAITING, exit_code=0, restarts=True, ready=False)),
            EnclavePhase.READY,
        ),
        (pod_of(up(restarts=True, restart_count=1, exit_code=1)), EnclavePhase.READY),
        (
            pod_of(up(restarts=True, restart_count=1, exit_code=1, started_at=NOW)),
            EnclavePhase.STARTED,
        ),
        (pod_of(up(state=ENDED, exit_code=1, restarts=True)), EnclavePhase.STARTED),
    ],
    ids=[
        "all run",
        "pod pending",
        "container waits",
        "shim waits",
        "second container waits",
        "the agent waits",
        "the shim does not listen",
        "the agent decides about health",
        "no agent",
        "a job has finished",
        "readiness means nothing without a health check",
        "no shim",
        "a finished job is started again",
        "steady after a crash",
        "just started after a crash",
        "about to be started again",
    ],
)
def test_phases_of_a_boot(pod: PodFacts, want: EnclavePhase) -> None:
    status = verdict(fresh(), pod)
    assert status.phase is want
    assert status.pod_uid == "pod-1"
    assert status.address == "10.0.0.7"
    assert holds(status.conditions, "Ready") == (want is EnclavePhase.READY)
    assert (status.ready_at is not None) == (want is EnclavePhase.READY)


FAILURES = {
    "exit code": (
        pod_of(up(state=ENDED, exit_code=3, exit_message="no database")),
        "BootFailed",
        (
            "Container web terminated with exit code 3 while the enclave started. Its last "
            "message: no database"
        ),
    ),
    "out of memory": (
        pod_of(up(state=ENDED, exit_code=137, exit_reason="OOMKilled")),
        "BootFailed",
        "exit code 137 (OOMKilled)",
    ),
    "crash loop": (
        pod_of(
            up(
                state=WAITING,
                reason="CrashLoopBackOff",
                exit_code=1,
                restart_count=5,
                restarts=True,
            )
        ),
        "BootFailed",
        "after 5 restarts",
    ),
    "finished although it has a health check": (
        pod_of(up(state=ENDED, exit_code=0, checked=True)),
        "BootFailed",
        "exit code 0",
    ),
    "unhealthy": (
        pod_of(agent=up("agent", ready=False, exit_code=1, exit_message=UNHEALTHY)),
        "HealthcheckFailed",
        "Container web is unhealthy. Its last output: refused",
    ),
    "the agent gives up": (
        pod_of(agent=up("agent", exit_code=1, exit_message="BootFailed: The file: differs.")),
        "BootFailed",
        "The file: differs.",
    ),
    "shim ended": (
        pod_of(shim=up("shim", state=ENDED, exit_code=1)),
        "BootFailed",
        "Container shim",
    ),
}


@pytest.mark.parametrize(("pod", "reason", "text"), FAILURES.values(), ids=FAILURES)
def test_failures_of_a_boot(pod: PodFacts, reason: str, text: str) -> None:
    status = verdict(fresh(EnclavePhase.STARTED, pod_uid="pod-1"), pod)
    assert (status.phase, status.reason) == (EnclavePhase.FAILED, reason)
    assert text in status.message
    assert holds(status.conditions, "Stalled")
    assert not holds(status.conditions, "Reconciling")


@pytest.mark.parametrize("pod", [each[0] for each in FAILURES.values()], ids=FAILURES)
def test_what_was_ready_once_stays_so(pod: PodFacts) -> None:
    before = fresh(EnclavePhase.READY, pod_uid="pod-1", ready_at=BORN, promoted_at=BORN)
    status = verdict(before, pod)
    assert status.phase is EnclavePhase.READY
    assert status.reason == ""
    assert status.promoted_at == BORN
    assert status.ready_at == BORN


LOSSES = {
    "deleted": (pod_of(deleting=True), "PodLost"),
    "vanished": (None, "PodLost"),
    "another one": (pod_of(uid="pod-2"), "PodLost"),
    "failed": (pod_of(phase=PodPhase.FAILED, reason="Shutdown"), "PodLost"),
    "ended": (pod_of(phase=PodPhase.SUCCEEDED), "PodLost"),
    "ended, nobody saw how": (
        pod_of(
            up(state=ENDED, exit_code=255, exit_reason="Unknown", ready=False),
            phase=PodPhase.FAILED,
        ),
        "PodLost",
    ),
    "ended by the node": (
        pod_of(
            up(state=ENDED, exit_code=143, ready=False),
            phase=PodPhase.FAILED,
            reason="Terminated",
            message="The node shuts down.",
        ),
        "PodLost",
    ),
    "ended by its deletion": (
        pod_of(up(state=ENDED, exit_code=143, ready=False), phase=PodPhase.FAILED, deleting=True),
        "PodLost",
    ),
    "evicted by the kubelet": (
        pod_of(phase=PodPhase.FAILED, reason="Evicted", message="low on memory"),
        "Evicted",
    ),
    "evicted by the API": (pod_of(deleting=True, disruption="EvictionByEvictionAPI"), "Evicted"),
    "preempted": (pod_of(deleting=True, disruption="PreemptionByScheduler"), "Evicted"),
    "tainted": (pod_of(deleting=True, disruption="DeletionByTaintManager"), "NodeLost"),
    "node gone": (pod_of(node_gone=True), "NodeLost"),
}


@pytest.mark.parametrize(
    "message",
    [
        'Container web exceeded its local ephemeral storage limit "10Gi". ',
        "Pod ephemeral local storage usage exceeds the total limit of containers 90Gi. ",
    ],
)
def test_an_enclave_that_filled_its_disk_is_told_what_to_do(message: str) -> None:
    pod = pod_of(phase=PodPhase.FAILED, reason="Evicted", message=message)
    status = verdict(fresh(EnclavePhase.READY, pod_uid="pod-1", node="node-1"), pod)
    assert status.reason == "Evicted"
    assert message.strip() in status.message
    assert "tmpfs" in status.message
    assert "sizing.ephemeralStorageMB" in status.message


@pytest.mark.lifecycle("node-lost")
@pytest.mark.parametrize(("pod", "reason"), LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("phase", [EnclavePhase.PENDING, EnclavePhase.STARTED, EnclavePhase.READY])
def test_losses_count_in_every_phase(
    pod: PodFacts | None, reason: str, phase: EnclavePhase
) -> None:
    status = verdict(fresh(phase, pod_uid="pod-1", node="node-1"), pod)
    assert (status.phase, status.reason) == (EnclavePhase.FAILED, reason)
    assert status.message
    assert status.pod_uid == "pod-1"


@pytest.mark.parametrize(
    ("pod", "reason", "text"),
    [
        (
            pod_of(
                PodContainer(name="web", reason="ImagePullBackOff", message="manifest unknown"),
                phase=PodPhase.PENDING,
            ),
            "ImagePull",
            "The image of container web cannot be pulled: manifest unknown",
        ),
        (
            pod_of(
                PodContainer(name="web", reason="PodInitializing"),
                phase=PodPhase.PENDING,
                sidecars=(up("certificate", exit_code=0, exit_message="the API is away"),),
            ),
            "",
            "Its last message: the API is away It was restarted.",
        ),
        (
            pod_of(phase=PodPhase.PENDING, unschedulable="0/3 nodes: insufficient memory"),
            "Unschedulable",
            "insufficient memory",
        ),
        (
            pod_of(
                PodContainer(name="web", reason="CreateContainerError", message="bad user"),
                phase=PodPhase.PENDING,
            ),
            "",
            "cannot be started: bad user",
        ),
        (
            pod_of(
                up(
                    state=WAITING,
                    reason="CrashLoopBackOff",
                    exit_code=2,
                    restart_count=2,
                    restarts=True,
                )
            ),
            "",
            (
                "after 2 restarts while the enclave started. It left no message; read its log. "
                "It is restarted."
            ),
        ),
    ],
)
def test_waits_are_told(pod: PodFacts, reason: str, text: str) -> None:
    status = verdict(fresh(), pod)
    assert status.phase in {EnclavePhase.PENDING, EnclavePhase.STARTED}
    assert status.reason == reason
    assert text in status.message


def test_the_deadline_ends_a_wait() -> None:
    old = enclave_of(container_of(), phase=EnclavePhase.PENDING, at=NOW - timedelta(minutes=60))
    pod = pod_of(
        PodContainer(name="web", reason="ErrImagePull", message="no route"),
        uid=old.status.pod_uid,
        phase=PodPhase.PENDING,
    )
    status = verdict(old, pod)
    assert status.reason == "ProgressDeadlineExceeded"
    assert "Its containers did not all start within 60 min" in status.message
    assert "no route" in status.message


def test_the_deadline_does_not_end_what_is_ready_at_last() -> None:
    old = enclave_of(container_of(), phase=EnclavePhase.STARTED, at=NOW - timedelta(hours=1))
    status = verdict(old, pod_of(uid=old.status.pod_uid))
    assert status.phase is EnclavePhase.READY


@pytest.mark.parametrize("phase", [EnclavePhase.FAILED, EnclavePhase.ENDED])
def test_what_is_over_stays_over(phase: EnclavePhase) -> None:
    before = fresh(phase, pod_uid="pod-1")
    assert verdict(before, pod_of()) is before.status


def test_what_is_being_deleted_is_not_judged() -> None:
    leaving = enclave_of(container_of(), deleting=True)
    assert verdict(leaving, None) is leaving.status


def test_an_equal_pod_changes_nothing() -> None:
    enclave = fresh()
    first = verdict(enclave, pod_of())
    again = verdict(enclave.model_copy(update={"status": first}), pod_of())
    assert again == first


def test_containers_are_shown_by_their_names_in_the_file() -> None:
    pod = pod_of(
        up(checked=True),
        up("job", state=ENDED, exit_code=0, exit_reason="Completed", restart_count=1),
    )
    web, job = verdict(fresh(), pod).containers
    assert (web.name, web.healthy, web.message) == ("web", True, "")
    assert (job.name, job.healthy, job.exit_code, job.message) == ("job", None, 0, "Completed")
    assert job.restart_count == 1


@pytest.mark.parametrize(
    ("enclave", "pod", "want"),
    [
        (fresh(), None, PodAction.CREATE),
        (fresh(EnclavePhase.PENDING), None, PodAction.CREATE),
        (fresh(EnclavePhase.PENDING, pod_uid="pod-1"), None, PodAction.KEEP),
        (fresh(EnclavePhase.READY, pod_uid="pod-1"), pod_of(), PodAction.KEEP),
        (fresh(EnclavePhase.FAILED, pod_uid="pod-1"), pod_of(), PodAction.DELETE),
        (fresh(EnclavePhase.FAILED, pod_uid="pod-1"), pod_of(deleting=True), PodAction.KEEP),
        (fresh(EnclavePhase.FAILED, pod_uid="pod-1"), None, PodAction.KEEP),
        (enclave_of(container_of(), deleting=True), pod_of(), PodAction.DELETE),
        (enclave_of(container_of(), deleting=True, phase=None), None, PodAction.KEEP),
    ],
)
def test_an_enclave_has_one_pod_in_its_life(
    enclave: Enclave, pod: PodFacts | None, want: PodAction
) -> None:
    assert pod_action(enclave, pod) is want


def test_a_crashed_container_is_looked_at_when_it_is_steady() -> None:
    crashed = pod_of(up(restart_count=1, exit_code=1, started_at=NOW - timedelta(seconds=4)))
    wait = reevaluate_after(fresh(EnclavePhase.STARTED), crashed, NOW, SETTINGS)
    assert wait == timedelta(seconds=6)


def test_the_deadline_is_looked_at() -> None:
    assert reevaluate_after(fresh(), None, NOW, SETTINGS) == timedelta(minutes=60) - (NOW - BORN)
    starting = fresh(EnclavePhase.STARTED, started_at=NOW - timedelta(minutes=10))
    assert reevaluate_after(starting, pod_of(), NOW, SETTINGS) == timedelta(minutes=20)


@pytest.mark.parametrize("phase", [EnclavePhase.READY, EnclavePhase.FAILED])
def test_what_changes_with_its_pod_alone_is_not_looked_at(phase: EnclavePhase) -> None:
    assert reevaluate_after(fresh(phase), pod_of(), NOW, SETTINGS) is None


def test_health_checks_have_the_time_that_docker_gives_them() -> None:
    check = Healthcheck(
        test=("CMD", "true"),
        interval=timedelta(seconds=10),
        timeout=timedelta(seconds=5),
        retries=3,
        start_period=timedelta(seconds=60),
    )
    assert health_allowance(check) == timedelta(seconds=60 + 3 * 15 + 15)
    assert health_allowance(None) is None
    assert health_allowance(Healthcheck(test=("NONE",))) is None


def test_the_judgement_at_the_named_time_differs() -> None:
    enclave = fresh(EnclavePhase.STARTED, pod_uid="pod-1")
    crashed = pod_of(up(restart_count=1, exit_code=1, started_at=NOW - timedelta(seconds=4)))
    wait = reevaluate_after(enclave, crashed, NOW, SETTINGS)
    assert wait is not None
    assert evaluate_enclave(enclave, crashed, NOW, SETTINGS).phase is EnclavePhase.STARTED
    assert evaluate_enclave(enclave, crashed, NOW + wait, SETTINGS).phase is EnclavePhase.READY


def test_an_agent_that_crashed_is_no_failed_boot() -> None:
    """What it left in its log is not what it reports of a boot."""
    for message in ("", "panic: broken", "Other: words", "HealthcheckFailed"):
        pod = pod_of(agent=up("agent", exit_code=2, exit_message=message, restart_count=1))
        assert verdict(fresh(EnclavePhase.STARTED, pod_uid="pod-1"), pod).phase is not FAILED


@pytest.mark.parametrize("phase", [PodPhase.PENDING, PodPhase.FAILED])
@pytest.mark.parametrize(
    ("code", "said", "reason", "message"),
    [
        (65, '{"msg": "checked"}\nmodel a is wrong\n', "ModelInvalid", "model a is wrong"),
        (66, "model a is not there", "ModelNotFound", "model a is not there"),
        (65, "", "BootFailed", "Container models terminated with exit code 65"),
        (125, "no document", "BootFailed", "Its last message: no document"),
    ],
)
def test_model_weights_that_are_wrong_have_reasons_of_their_own(
    phase: PodPhase, code: int, said: str, reason: str, message: str
) -> None:
    part = up("models", state=ENDED, ready=False, exit_code=code, exit_message=said)
    status = verdict(fresh(), pod_of(up(ready=False), phase=phase, sidecars=(part,)))
    assert (status.phase, status.reason) == (EnclavePhase.FAILED, reason)
    assert message in status.message


REFUSED = "a line of the log\nguest net: not what was measured: network.json has the digest x"


@pytest.mark.parametrize("phase", [PodPhase.PENDING, PodPhase.FAILED])
@pytest.mark.parametrize("name", ["keep", "agent", "net", "shim", "web"])
def test_a_document_that_is_not_the_measured_one_fails_the_boot_at_once(
    phase: PodPhase, name: str
) -> None:
    part = up(name, state=WAITING, ready=False, restarts=True, exit_code=67, exit_message=REFUSED)
    parts: dict[str, Any] = {name: part} if name in {"agent", "shim"} else {"sidecars": (part,)}
    pod = pod_of(part if name == "web" else up(ready=False), phase=phase, **parts)
    status = verdict(fresh(), pod)
    assert (status.phase, status.reason) == (EnclavePhase.FAILED, "MeasurementMismatch")
    assert status.message.startswith(f"Container {name}: guest net: not what was measured")


def test_a_program_of_the_file_may_use_that_exit_code() -> None:
    broken = up(state=ENDED, ready=False, exit_code=67, exit_message="of my own")
    assert verdict(fresh(), pod_of(broken)).reason == "BootFailed"


def test_a_container_of_the_file_has_no_such_reasons() -> None:
    broken = up(state=ENDED, ready=False, exit_code=65, exit_message="model a is wrong")
    assert verdict(fresh(), pod_of(broken)).reason == "BootFailed"
