"""The stages of a boot as far as a Pod shows them."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cloister_crds.kinds.enclave import ContainerStateName
from cloister_operator.rollout.pod_facts import (
    STAGES,
    PodContainer,
    PodFacts,
    PodPhase,
    boot_failure,
    boot_stages,
)
from tests.support.builders.resources import NOW
from tests.support.builders.world import UNHEALTHY

SKIPPED = frozenset({"cpu-attestation", "gpu-attestation", "models"})


def running(name: str, *, ready: bool = False) -> PodContainer:
    state = ContainerStateName.RUNNING
    return PodContainer(name=name, state=state, started_at=NOW - timedelta(seconds=9), ready=ready)


NEW = PodFacts(
    uid="pod-1",
    containers=(PodContainer(name="web"), PodContainer(name="db")),
    shim=PodContainer(name="shim"),
    agent=PodContainer(name="agent"),
    skipped_stages=SKIPPED,
)
UP = replace(NEW, phase=PodPhase.RUNNING, agent=running("agent"))
HALF = replace(UP, containers=(running("web"), PodContainer(name="db")))
STARTED = replace(UP, containers=(running("web"), running("db")), shim=running("shim", ready=True))
CHECKED = replace(UP, containers=(replace(running("web", ready=True), checked=True),))
READY = replace(STARTED, agent=running("agent", ready=True))


@pytest.mark.parametrize(
    ("pod", "over"),
    [
        (NEW, set()),
        (UP, set()),
        (CHECKED, {"config", "network", "firewall", "secrets"}),
        (HALF, set()),
        (STARTED, {"config", "identity", "certificate", "secrets", "shim"}),
        (READY, set(STAGES) - SKIPPED),
    ],
)
def test_a_stage_is_over_when_something_later_shows_it(pod: PodFacts, over: set[str]) -> None:
    stages = {each.name: each.status for each in boot_stages(pod)}
    assert tuple(stages) == STAGES
    for name, status in stages.items():
        assert status == ("skipped" if name in SKIPPED else "ok" if name in over else "pending")


def test_a_failed_boot_shows_where_and_why() -> None:
    agent = replace(running("agent"), exit_code=1, exit_message=UNHEALTHY)
    pod = replace(STARTED, agent=agent)
    (found,) = [each for each in boot_stages(pod) if each.status == "failed"]
    assert found.name == "containers"
    assert found.detail == "Container web is unhealthy. Its last output: refused"


def test_the_weights_are_verified_before_a_container_starts() -> None:
    for pod, status in ((UP, "pending"), (HALF, "ok")):
        stages = boot_stages(replace(pod, skipped_stages=frozenset()))
        assert [each.status for each in stages if each.name == "models"] == [status]


@pytest.mark.parametrize(
    ("code", "said"), [(65, "guest models: it differs"), (66, "it is not there")]
)
def test_weights_that_fail_are_told_in_their_stage(code: int, said: str) -> None:
    models = PodContainer(
        name="models",
        state=ContainerStateName.TERMINATED,
        exit_code=code,
        exit_message=f"a line of the log\n{said}\n",
    )
    pod = replace(UP, sidecars=(models,), skipped_stages=frozenset())
    failed = [each for each in boot_stages(pod) if each.status == "failed"]
    assert [(each.name, each.detail) for each in failed] == [("models", said)]


def test_a_document_that_was_changed_is_told_in_the_first_stage() -> None:
    said = "guest net: not what was measured: network.json has the digest x"
    net = replace(running("net"), exit_code=67, exit_message=f"{said}\n")
    pod = replace(UP, sidecars=(net,), skipped_stages=frozenset())
    failed = [each for each in boot_stages(pod) if each.status == "failed"]
    assert [(each.name, each.detail) for each in failed] == [("config", f"Container net: {said}")]


def test_the_agent_tells_of_weights_too() -> None:
    told = ("ModelInvalid", "Stage models: model a: it differs")
    agent = replace(running("agent"), exit_code=1, exit_message=": ".join(told))
    pod = replace(UP, agent=agent, skipped_stages=frozenset())
    assert boot_failure(pod) == told
    failed = [each for each in boot_stages(pod) if each.status == "failed"]
    assert [(each.name, each.detail) for each in failed] == [("models", told[1])]


def test_a_stage_that_the_message_names_is_the_one_that_failed() -> None:
    text = "BootFailed: Stage cpu-attestation: the attestation service does not result"
    agent = replace(running("agent"), exit_code=1, exit_message=text)
    pod = replace(STARTED, agent=agent, skipped_stages=frozenset())
    failed = [each for each in boot_stages(pod) if each.status == "failed"]
    assert [(each.name, each.detail) for each in failed] == [
        ("cpu-attestation", "Stage cpu-attestation: the attestation service does not result")
    ]
