"""Enclaves and Pods for tests of the status of an attempt."""

from datetime import timedelta
from typing import Any

from cloister_crds.kinds.enclave import ContainerStateName, Enclave, EnclavePhase, EnclaveStatus
from cloister_operator.rollout.enclave_status import evaluate_enclave
from cloister_operator.rollout.pod_facts import PodContainer, PodFacts, PodPhase
from tests.support.builders.resources import NOW, SETTINGS, container_of, enclave_of

__all__ = ["BORN", "fresh", "pod_of", "up", "verdict"]

BORN = NOW - timedelta(seconds=30)
"""When the Enclaves were created."""


def fresh(phase: EnclavePhase | None = None, **status: Any) -> Enclave:
    """Build an Enclave that was created 30 seconds ago."""
    enclave = enclave_of(container_of(), phase=phase, at=BORN)
    given = EnclaveStatus.model_validate({"phase": phase, **status})
    return enclave.model_copy(update={"status": given})


def up(name: str = "web", **fields: Any) -> PodContainer:
    """Build a container that has run for 20 seconds."""
    given = {
        "state": ContainerStateName.RUNNING,
        "started_at": NOW - timedelta(seconds=20),
        "ready": True,
        **fields,
    }
    return PodContainer(name=name, **given)


def pod_of(*containers: PodContainer, **fields: Any) -> PodFacts:
    """Build a running Pod with a running shim."""
    given: dict[str, Any] = {
        "uid": "pod-1",
        "phase": PodPhase.RUNNING,
        "node": "node-1",
        "address": "10.0.0.7",
        "containers": containers or (up(),),
        "shim": up("shim"),
        "agent": up("agent"),
        **fields,
    }
    return PodFacts(**given)


def verdict(enclave: Enclave, pod: PodFacts | None) -> EnclaveStatus:
    """Evaluate at the present of the tests."""
    return evaluate_enclave(enclave, pod, NOW, SETTINGS)
