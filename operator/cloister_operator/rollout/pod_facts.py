"""What the Pod of an Enclave shows.

The facts that `evaluate_enclave` needs, and the stages of its boot.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cloister_crds.kinds.enclave import BootStage, ContainerStateName


class PodPhase(StrEnum):
    """Phase of a Pod (Kubernetes, "Pod Lifecycle")."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class PodContainer:
    """One container of a Pod, from ``status.containerStatuses`` and its part of the Pod's spec."""

    name: str
    """Name in the configuration file (for the shim any name)."""
    state: ContainerStateName = ContainerStateName.WAITING
    """Its state."""
    reason: str = ""
    """Reason why it waits or ended, such as ``ImagePullBackOff`` or ``OOMKilled``."""
    message: str = ""
    """Message for that reason."""
    started_at: datetime | None = None
    """When its process was last started, in UTC; None if never."""
    ended_at: datetime | None = None
    """When its process last ended, in UTC, in whole seconds; None if never, or unknown."""
    exit_code: int | None = None
    """Exit code of its last end (the state's, else the last state's); None if it never ended."""
    exit_reason: str = ""
    """Reason of that end."""
    exit_message: str = ""
    """Termination message of that end."""
    restart_count: int = 0
    """How often it was restarted."""
    restarts: bool = False
    """Whether its restart policy restarts it after an exit with an error."""
    ready: bool = False
    """The kubelet's readiness flag: with a health check, whether that passes."""
    checked: bool = False
    """Whether it has a health check, whose state ``ready`` then is."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A Pod."""

    uid: str
    """uid of the Pod."""
    phase: PodPhase = PodPhase.PENDING
    """Its phase."""
    reason: str = ""
    """``status.reason``, such as ``Evicted``."""
    message: str = ""
    """``status.message``."""
    deleting: bool = False
    """Whether it has a deletionTimestamp."""
    node: str = ""
    """Node it is bound to; empty if there is none."""
    node_gone: bool = False
    """Whether that node no longer exists, or is not ready and the Pod is being evicted for it."""
    measurement: str = ""
    """Digest of the measurement document that it was created from; empty for older ones."""
    initdata: str = ""
    """Digest of its initdata; empty if it has none."""
    guest_rules: str = ""
    """Digest of the rules in its initdata; empty if it has none."""
    address: str = ""
    """First IPv4 address; empty if it has none yet."""
    unschedulable: str = ""
    """Message of the condition PodScheduled=False with reason Unschedulable; empty otherwise."""
    disruption: str = ""
    """Reason of the condition DisruptionTarget=True, such as ``EvictionByEvictionAPI``."""
    containers: tuple[PodContainer, ...] = ()
    """Containers of the file, in its order."""
    shim: PodContainer | None = None
    """The shim; None if the Pod has none."""
    agent: PodContainer | None = None
    """The agent, whose readiness is the enclave's; None if the Pod has none."""
    skipped_stages: frozenset[str] = frozenset()
    """Stages of the boot in which no action is required."""
    sidecars: tuple[PodContainer, ...] = ()
    """Our other sidecars, by the names they have in the Pod, in its order."""

    @property
    def all_containers(self) -> tuple[PodContainer, ...]:
        """All containers: those of the file, the shim, the agent, our other sidecars."""
        ours = tuple(each for each in (self.shim, self.agent) if each is not None)
        return (*self.containers, *ours, *self.sidecars)


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
_EXPIRED = "CertificateExpired: "
"""Beginning of the termination message of ``guest certificate`` after an expiry. It exits again
once a certificate follows."""
_MISMATCH = "MeasurementMismatch"
_REASONS = frozenset({"BootFailed", "HealthcheckFailed", _MISMATCH, *_SIDECAR_REASONS.values()})
_NOT_MEASURED = (67, "not what was measured")
"""Exit code and message of a part of the guest, as the guest's package `measured` has them."""
_DETAIL_LIMIT = 4096


def expired_certificate(pod: PodFacts | None) -> str:
    """Return when the certificate of an enclave expired and why it has no new one; empty if not."""
    messages = (each.exit_message for each in (pod.sidecars if pod is not None else ()))
    found = next((each for each in messages if each.startswith(_EXPIRED)), "")
    return found.removeprefix(_EXPIRED).strip()[:_DETAIL_LIMIT]


def boot_failure(pod: PodFacts) -> tuple[str, str] | None:
    """Return why the boot failed, as the agent reports it.

    Returns
    -------
    tuple[str, str] | None
        Reason and message from the agent's termination message (``Reason: message``); None if it
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
        Reason and message; None if it has no reason of its own.
    """
    reason = _SIDECAR_REASONS.get(sidecar.exit_code or 0)
    log = sidecar.exit_message.strip()
    return (reason, log.splitlines()[-1]) if reason is not None and log else None


def measurement_failure(pod: PodFacts) -> tuple[str, str] | None:
    """Return why a part of the guest did not work by its document: it is not the measured one.

    Returns
    -------
    tuple[str, str] | None
        Reason and message; None if none refused its document. A restart changes no document, so
        that the first refusal is final.
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
        One entry for each stage. A stage is ``ok`` when something after it has happened; the agent
        is ready when all stages are over.
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
    """Return the stage that failed and why; None if none did."""
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
    if pod.agent is not None and pod.agent.ready:
        return True
    serves = pod.shim is not None and pod.shim.ready
    healthy = any(each.checked and each.ready for each in pod.containers)
    shown = {
        # The agent reads the file before it responds to any probe.
        "config": serves or healthy,
        # No program of the file runs before its network does.
        "network": healthy,
        "firewall": healthy,
        # The shim refuses handshakes until it has a certificate for the key.
        "identity": serves,
        "certificate": serves,
        # The kubelet mounts secrets before it starts a container, and starts none before the
        # weights are verified.
        "models": any(_was_started(each) for each in pod.containers),
        "secrets": bool(pod.containers) and all(_was_started(each) for each in pod.containers),
        "shim": serves,
    }
    return shown.get(name, False)


def _was_started(container: PodContainer) -> bool:
    """Return whether the kubelet ever started a container."""
    return container.started_at is not None or container.state is ContainerStateName.TERMINATED
