"""The stages of an enclave's boot as far as its Pod shows them, without a request to the enclave.

The enclave itself reports more (its boot-stages document); the names and their order are the same.
"""

from cloister_crds.kinds.enclave import BootStage, ContainerStateName
from cloister_operator.rollout.pod_facts import PodContainer, PodFacts

__all__ = ["STAGES", "boot_failure", "boot_stages", "measurement_failure", "sidecar_failure"]

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
_SIDECAR_REASONS = {65: "ModelInvalid", 66: "ModelNotFound"}
"""Reasons of our sidecars that exited, by exit code, as the guest's package `models` has them."""
_MISMATCH = "MeasurementMismatch"
_REASONS = frozenset({"BootFailed", "HealthcheckFailed", _MISMATCH, *_SIDECAR_REASONS.values()})
_NOT_MEASURED = (67, "not what was measured")
"""Exit code and message of a part of the guest, as the guest's package `measured` has them."""
_DETAIL_LIMIT = 4096


def boot_failure(pod: PodFacts) -> tuple[str, str] | None:
    """Return why the boot failed, as the agent reports it.

    Returns
    -------
    tuple[str, str] | None
        Reason and message from the agent's termination message (``Reason: message``); None = it
        has no such message.
    """
    if pod.agent is None or not pod.agent.exit_code:
        return None
    reason, found, message = pod.agent.exit_message.strip().partition(": ")
    return (reason, message) if found and reason in _REASONS else None


def sidecar_failure(sidecar: PodContainer) -> tuple[str, str] | None:
    """Return why one of our sidecars exited, from its exit code and the last line of its log.

    Returns
    -------
    tuple[str, str] | None
        Reason and message; None = it has no reason of its own.
    """
    reason = _SIDECAR_REASONS.get(sidecar.exit_code or 0)
    log = sidecar.exit_message.strip()
    return (reason, log.splitlines()[-1]) if reason is not None and log else None


def measurement_failure(pod: PodFacts) -> tuple[str, str] | None:
    """Return why a part of the guest did not work by its document: it is not the measured one.

    Returns
    -------
    tuple[str, str] | None
        Reason and message; None = none refused its document. A restart changes no document, so that
        the first refusal is final.
    """
    code, words = _NOT_MEASURED
    for each in pod.all_containers:
        if each.exit_code == code and words in each.exit_message:
            line = each.exit_message.strip().splitlines()[-1]
            return _MISMATCH, f"Container {each.name}: {line}"
    return None


def boot_stages(pod: PodFacts) -> tuple[BootStage, ...]:
    """Report how far the boot is.

    Returns
    -------
    tuple[BootStage, ...]
        One entry for each stage. A stage is ``ok`` when the probe of one of our sidecars shows it,
        or something after it has happened; the agent is ready when all stages are over.
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
    """Return the stage that failed and why; None = none did."""
    failure = boot_failure(pod)
    if failure is not None:
        return _failed_stage(failure[1]), failure[1]
    if (mismatch := measurement_failure(pod)) is not None:
        return "config", mismatch[1]
    ended = (sidecar_failure(each) for each in pod.sidecars)
    return next((("models", each[1]) for each in ended if each is not None), None)


def _failed_stage(message: str) -> str:
    """Return the stage in which a boot failed: the message names it, or a container is why."""
    named = message.removeprefix("Stage ").partition(":")[0]
    if message.startswith("Stage ") and named in STAGES:
        return named
    return "containers"


def _is_over(name: str, pod: PodFacts) -> bool:
    """Return whether a stage is over."""
    if (pod.agent is not None and pod.agent.ready) or name in pod.over_stages:
        return True
    shown = {
        # The agent reads the file before it responds to any probe.
        "config": bool(pod.over_stages)
        or any(each.checked and each.ready for each in pod.containers),
        # The kubelet mounts secrets before it starts a container, and starts none before the
        # weights are verified.
        "models": any(_was_started(each) for each in pod.containers),
        "secrets": bool(pod.containers) and all(_was_started(each) for each in pod.containers),
        "shim": pod.shim is not None and pod.shim.ready,
    }
    return shown.get(name, False)


def _was_started(container: PodContainer) -> bool:
    """Return whether the kubelet ever started a container."""
    return container.started_at is not None or container.state is ContainerStateName.TERMINATED
