"""The Pod of an Enclave, as far as `evaluate_enclave` needs it; nothing of it is stored."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cloister_crds.kinds.enclave import ContainerStateName

__all__ = [
    "PodContainer",
    "PodFacts",
    "PodPhase",
]


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
    """When its process was last started, in UTC; None = never."""
    ended_at: datetime | None = None
    """When its process last ended, in UTC, in whole seconds; None = never, or unknown."""
    exit_code: int | None = None
    """Exit code of its last end (the state's, else the last state's); None = it never ended."""
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
    """Node it is bound to; empty = none."""
    node_gone: bool = False
    """Whether that node no longer exists, or is not ready and the Pod is being evicted for it."""
    measurement: str = ""
    """Digest of the measurement document that it was created from; empty for older ones."""
    initdata: str = ""
    """Digest of its initdata; empty = it has none."""
    guest_rules: str = ""
    """Digest of the rules in its initdata; empty = it has none."""
    address: str = ""
    """First IPv4 address; empty = none yet."""
    unschedulable: str = ""
    """Message of the condition PodScheduled=False with reason Unschedulable; empty otherwise."""
    disruption: str = ""
    """Reason of the condition DisruptionTarget=True, such as ``EvictionByEvictionAPI``."""
    containers: tuple[PodContainer, ...] = ()
    """Containers of the file, in its order."""
    shim: PodContainer | None = None
    """The shim; None = the Pod has none."""
    agent: PodContainer | None = None
    """The agent, whose readiness is the enclave's; None = the Pod has none."""
    skipped_stages: frozenset[str] = frozenset()
    """Stages of the boot in which nothing is to be done."""
    over_stages: frozenset[str] = frozenset()
    """Stages of the boot that the probes of our sidecars show to be over."""
    sidecars: tuple[PodContainer, ...] = ()
    """Our other sidecars, by the names they have in the Pod, in its order."""

    @property
    def all_containers(self) -> tuple[PodContainer, ...]:
        """All containers: those of the file, the shim, the agent, our other sidecars."""
        ours = tuple(each for each in (self.shim, self.agent) if each is not None)
        return (*self.containers, *ours, *self.sidecars)
