"""Containers that exit with an error while the enclave starts: who reports why; what is a loss."""

from datetime import timedelta
from typing import Any

import pytest

from cloister_crds.kinds.enclave import ContainerStateName, EnclavePhase
from cloister_operator.rollout.enclave_status import evaluate_enclave, reevaluate_after
from cloister_operator.rollout.pod_facts import PodContainer, PodFacts, PodPhase
from tests.support.builders.attempts import fresh, pod_of, up, verdict
from tests.support.builders.resources import NOW, SETTINGS

FAILED = EnclavePhase.FAILED
ENDED = ContainerStateName.TERMINATED


def broken_down(age: float, agent: PodContainer | None, **fields: Any) -> PodFacts:
    """Build a Pod with a container that exited with an error some seconds ago."""
    at = NOW - timedelta(seconds=age)
    web = up(state=ENDED, exit_code=127, ended_at=at, ready=False)
    return pod_of(web, agent=agent, **fields)


STARTED = fresh(EnclavePhase.STARTED, pod_uid="pod-1")
TELLS = up("agent", state=ENDED, exit_code=1, exit_message="BootFailed: Container web: no /x.")
SILENT = up("agent", state=ENDED, exit_code=2, ready=False)


@pytest.mark.parametrize("phase", [PodPhase.RUNNING, PodPhase.FAILED])
@pytest.mark.parametrize("age", [0, 2.9])
def test_why_a_container_broke_down_may_be_told_after_its_end(phase: PodPhase, age: float) -> None:
    waits = broken_down(age, up("agent"), phase=phase)
    assert verdict(STARTED, waits).phase in {EnclavePhase.PENDING, EnclavePhase.STARTED}
    left = reevaluate_after(STARTED, waits, NOW, SETTINGS)
    assert left == timedelta(seconds=3) - timedelta(seconds=age)
    assert "left no message" in evaluate_enclave(STARTED, waits, NOW + left, SETTINGS).message
    told = verdict(STARTED, broken_down(age, TELLS, phase=phase))
    assert (told.phase, told.message) == (FAILED, "Container web: no /x.")
    stages = {each.name: each.status for each in told.boot_stages}
    assert stages["containers"] == "failed"


@pytest.mark.parametrize(
    "pod",
    [
        broken_down(3, up("agent")),
        broken_down(-1, up("agent")),
        broken_down(1, SILENT),
        broken_down(1, None),
        broken_down(3, up("agent"), phase=PodPhase.FAILED),
    ],
    ids=["too late", "a clock that is ahead", "said nothing", "no agent", "ended as a whole"],
)
def test_what_nobody_will_explain_is_judged_at_once(pod: PodFacts) -> None:
    status = verdict(STARTED, pod)
    assert (status.phase, status.reason) == (FAILED, "BootFailed")
    assert "terminated with exit code 127" in status.message


def test_what_was_ready_and_ended_as_a_whole_is_lost() -> None:
    served = fresh(EnclavePhase.READY, pod_uid="pod-1")
    assert verdict(served, broken_down(5, TELLS, phase=PodPhase.FAILED)).reason == "PodLost"
