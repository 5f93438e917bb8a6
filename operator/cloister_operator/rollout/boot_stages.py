"""The stages of an enclave's boot as they can be told from its Pod, without asking the enclave.

The enclave itself tells more (its boot-stages document); the names and their order are the same.
"""

from cloister_crds.kinds.enclave import BootStage, ContainerStateName
from cloister_operator.rollout.pod_facts import PodContainer, PodFacts

__all__ = ["STAGES", "boot_failure", "boot_stages", "part_failure"]

STAGES = (
    "config",
    "network",
    "identity",
    "cpu-attestation",
    "gpu-attestation",
    "certificate",
    "secrets",
    "registry-auth",
    "firewall",
    "models",
    "containers",
    "shim",
)
"""All stages, in order."""
_PART_REASONS = {65: "ModelInvalid", 66: "ModelNotFound"}
"""Reasons of parts of ours that ended, by exit code, as the guest's package `models` has them."""
_REASONS = frozenset({"BootFailed", "HealthcheckFailed", *_PART_REASONS.values()})
_BEFORE_AGENT = frozenset({"network", "firewall"})
_BEFORE_CONTAINERS = frozenset({"config", "identity", "certificate", "models"})
_BY_CONTAINERS = frozenset({"secrets"})
_DETAIL_LIMIT = 4096


def boot_failure(pod: PodFacts) -> tuple[str, str] | None:
    """Read why the agent says that the boot failed.

    Parameters
    ----------
    pod
        The Pod.

    Returns
    -------
    tuple[str, str] | None
        Reason and message from the agent's termination message (``Reason: message``); None = it
        says nothing of that kind.
    """
    if pod.agent is None or not pod.agent.exit_code:
        return None
    reason, found, message = pod.agent.exit_message.strip().partition(": ")
    return (reason, message) if found and reason in _REASONS else None


def part_failure(part: PodContainer) -> tuple[str, str] | None:
    """Read why a part of ours ended, from its exit code and the last line of its log.

    Parameters
    ----------
    part
        One of our parts.

    Returns
    -------
    tuple[str, str] | None
        Reason and message; None = it tells no reason of its own.
    """
    reason, said = _PART_REASONS.get(part.exit_code or 0), part.exit_message.strip()
    return (reason, said.splitlines()[-1]) if reason is not None and said else None


def boot_stages(pod: PodFacts) -> tuple[BootStage, ...]:
    """Tell how far the boot is.

    Parameters
    ----------
    pod
        The Pod.

    Returns
    -------
    tuple[BootStage, ...]
        One entry for each stage. A stage is ``ok`` as soon as something shows it that comes after
        it: the kubelet starts our parts one after the other and the containers last; the agent is
        ready when all are over.
    """
    failed = _failed(pod)
    stages = []
    for name in STAGES:
        if name in pod.skipped_stages:
            stages.append(BootStage(name=name, status="skipped"))
        elif failed is not None and name == failed[0]:
            detail = failed[1][:_DETAIL_LIMIT]
            stages.append(BootStage(name=name, status="failed", detail=detail))
        else:
            stages.append(BootStage(name=name, status="ok" if _is_over(name, pod) else "pending"))
    return tuple(stages)


def _failed(pod: PodFacts) -> tuple[str, str] | None:
    """Answer the stage that failed and why; None = none did."""
    told = boot_failure(pod)
    if told is not None:
        return _failed_stage(pod, told[1]), told[1]
    ended = (part_failure(each) for each in pod.side_cars)
    return next((("models", each[1]) for each in ended if each is not None), None)


def _failed_stage(pod: PodFacts, message: str) -> str:
    """Answer the stage that a failed boot stopped in: the message names it, or it is one of two."""
    named = message.removeprefix("Stage ").partition(":")[0]
    if message.startswith("Stage ") and named in STAGES:
        return named
    return "containers" if any(_was_started(each) for each in pod.containers) else "config"


def _is_over(name: str, pod: PodFacts) -> bool:
    """Tell whether a stage is over."""
    agent = pod.agent
    if agent is not None and agent.ready:
        return True
    if name in _BEFORE_AGENT:
        return agent is not None and _was_started(agent)
    if name in _BEFORE_CONTAINERS:
        return any(_was_started(each) for each in pod.containers)
    if name in _BY_CONTAINERS:
        return bool(pod.containers) and all(_was_started(each) for each in pod.containers)
    if name == "shim":
        return pod.shim is not None and pod.shim.ready
    return False


def _was_started(container: PodContainer) -> bool:
    """Tell whether the kubelet started a container once."""
    return container.started_at is not None or container.state is ContainerStateName.TERMINATED
