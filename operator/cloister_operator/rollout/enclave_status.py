"""The judgement of one attempt: from its Pod to the status of its Enclave. Pure.

The operator judges an Enclave whenever its Pod changes, at the times that `judge_again` names, and
before it decides about the Container. Health is the word of the enclave's own agent: its
readiness, and what it says when the boot fails. What the kubelet alone knows is judged here: pulls,
exit codes, crashes. Both count until the enclave is ready; after that only the loss of its Pod
does.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from cloister_crds.kinds.enclave import (
    ContainerState,
    ContainerStateName,
    Enclave,
    EnclavePhase,
    EnclaveStatus,
)
from cloister_crds.lifecycle.backoff import due
from cloister_crds.lifecycle.state.conditions import Finding, merge
from cloister_crds.lifecycle.state.observed import DecisionSettings
from cloister_operator.rollout.boot_stages import boot_failure, boot_stages, part_failure
from cloister_operator.rollout.pod_facts import PodContainer, PodFacts, PodPhase

__all__ = ["PodNeed", "is_under_way", "judge", "judge_again", "pod_need"]

CRASHES = 5
"""Restarts in the back-off of the kubelet (about five minutes) after which a boot has failed."""
STEADY = timedelta(seconds=10)
"""A container that was started again after an error counts as started after so long."""
SAYS_WHY = timedelta(seconds=3)
"""The agent tells so long after a container's end, at the latest, why the boot failed with it.

The kubelet reads both ends, and may tell of the container's first.
"""
_MESSAGE_LIMIT = 4096
_MINUTE = 60
_OVER = {EnclavePhase.FAILED, EnclavePhase.ENDED}
_UNDER_WAY = {None, EnclavePhase.PENDING, EnclavePhase.STARTED}

_UNKNOWN_ENDS = {"ContainerStatusUnknown", "Unknown"}
"""Reasons of ends that the kubelet did not see: the node started anew (kubelet; containerd)."""
_EVICTIONS = {"EvictionByEvictionAPI", "PreemptionByScheduler", "TerminationByKubelet"}
"""Reasons of the condition DisruptionTarget that mean an eviction (Kubernetes, "Disruptions")."""


class PodNeed(StrEnum):
    """What is to be done about the Pod of an Enclave."""

    CREATE = "create"
    """It has none and is to have one."""
    KEEP = "keep"
    """Nothing."""
    DELETE = "delete"
    """It has one and is to have none."""


def pod_need(enclave: Enclave, pod: PodFacts | None) -> PodNeed:
    """Tell whether an Enclave is to have a Pod. An Enclave has one Pod in its life.

    Parameters
    ----------
    enclave
        The Enclave with its newest judgement.
    pod
        Its Pod; None = there is none.
    """
    if enclave.status.phase in _OVER or enclave.metadata.deletion_timestamp is not None:
        return PodNeed.DELETE if pod is not None and not pod.deleting else PodNeed.KEEP
    if pod is None and not enclave.status.pod_uid:
        return PodNeed.CREATE
    return PodNeed.KEEP


def judge(
    enclave: Enclave,
    pod: PodFacts | None,
    now: datetime,
    settings: DecisionSettings,
    *,
    lacks: str = "",
) -> EnclaveStatus:
    """Judge an attempt.

    Parameters
    ----------
    enclave
        The Enclave with its status as it stands.
    pod
        Its Pod; None = there is none. A Pod that the status knows and that the store lacks was
        asked for by a live GET.
    now
        The present, in UTC.
    settings
        What the administrator set; ``progress_deadline`` counts from the Enclave's creation.
    lacks
        Why it has no Pod: the API's address, which it needs, is not known; empty = that is not so.

    Returns
    -------
    EnclaveStatus
        The complete next status, equal to the present one when nothing changed. A failure stays
        one.
    """
    before = enclave.status
    if before.phase in _OVER or enclave.metadata.deletion_timestamp is not None:
        return before
    facts = _facts(before, pod)
    failure = _part_failure(before, pod) or _loss(before, pod)
    if failure is None and before.phase is not EnclavePhase.READY:
        wait = _wait(pod, lacks)
        failure = _boot_failure(pod, now) or _overdue(enclave, pod, now, settings, wait[1])
    if failure is not None:
        return _failed(enclave, facts, *failure, now=now)
    phase = _phase(before, pod, now)
    reason, message = ("", "") if phase is EnclavePhase.READY else _wait(pod, lacks)
    return _settled(enclave, facts, phase, reason, message, now=now)


def judge_again(
    enclave: Enclave,
    pod: PodFacts | None,
    now: datetime,
    settings: DecisionSettings,
) -> timedelta | None:
    """Tell when an attempt has to be judged again although its Pod does not change.

    Parameters
    ----------
    enclave
        The Enclave with its newest judgement.
    pod
        Its Pod; None = there is none.
    now
        The present, in UTC.
    settings
        What the administrator set.

    Returns
    -------
    timedelta | None
        None when only a change of the Pod can change the judgement.
    """
    if enclave.status.phase in {*_OVER, EnclavePhase.READY}:
        return None
    created = enclave.metadata.creation_timestamp or now
    times = [created + settings.progress_deadline]
    for each in pod.containers if pod is not None else ():
        if each.started_at is None or each.state is not ContainerStateName.RUNNING:
            continue
        if each.restart_count:
            times.append(each.started_at + STEADY)
    broken = _broken(pod) if pod is not None else None
    if broken is not None and broken.ended_at is not None:
        times.append(broken.ended_at + SAYS_WHY)
    waits = [wait for at in times if (wait := due(at, now)) is not None]
    return min(waits, default=None)


def is_under_way(before: EnclaveStatus, after: EnclaveStatus) -> bool:
    """Tell whether an attempt was and is on its way, so that its next news says more than this.

    Parameters
    ----------
    before
        The status that is written.
    after
        The newest judgement.
    """
    return {before.phase, after.phase} <= _UNDER_WAY


def _part_failure(before: EnclaveStatus, pod: PodFacts | None) -> tuple[str, str] | None:
    """Tell whether a part of ours that the start needs ended with an error.

    The Pod ends with it, and would else be taken for lost.
    """
    if pod is None or pod.phase is not PodPhase.FAILED or before.phase is EnclavePhase.READY:
        return None
    broken = (each for each in pod.side_cars if _has_broken_down(each))
    return next((_breakdown(pod, each) for each in broken), None)


def _breakdown(pod: PodFacts, container: PodContainer) -> tuple[str, str]:
    """Answer why a container ended for good: parts of ours may tell it by their exit code."""
    told = part_failure(container) if container in pod.side_cars else None
    return told or ("BootFailed", _exit_message(container))


def _loss(before: EnclaveStatus, pod: PodFacts | None) -> tuple[str, str] | None:
    """Tell whether the Pod is lost: vanished, ended as a whole, or on its way out."""
    if pod is None or (before.pod_uid and pod.uid != before.pod_uid):
        where = f" on node {before.node}" if before.node else ""
        return ("PodLost", f"The Pod{where} was deleted.") if before.pod_uid else None
    text = f": {pod.message}" if pod.message else "."
    if pod.node_gone or pod.disruption == "DeletionByTaintManager":
        return "NodeLost", f"Node {pod.node} is gone{text}"
    if pod.reason == "Evicted" or pod.disruption in _EVICTIONS:
        return "Evicted", f"The Pod was evicted from node {pod.node}{text}"
    ended = pod.phase in {PodPhase.FAILED, PodPhase.SUCCEEDED}
    if ended and (before.phase is EnclavePhase.READY or not _has_failed_by_itself(pod)):
        return "PodLost", f"The Pod ended as a whole ({pod.reason or pod.phase}){text}"
    return ("PodLost", "The Pod is being deleted.") if pod.deleting else None


def _has_failed_by_itself(pod: PodFacts) -> bool:
    """Tell whether a Pod ended because a container of the file did, not because it was made to."""
    if pod.phase is not PodPhase.FAILED or pod.reason or pod.deleting:
        return False
    if boot_failure(pod) is not None:
        return True
    broken = (each for each in pod.containers if _has_broken_down(each))
    return any(each.exit_reason not in _UNKNOWN_ENDS for each in broken)


def _boot_failure(pod: PodFacts | None, now: datetime) -> tuple[str, str] | None:
    if pod is None:
        return None
    told = boot_failure(pod)
    if told is not None:
        return told
    broken = _broken(pod)
    if broken is None or _may_be_explained(pod, broken, now):
        return None
    return _breakdown(pod, broken)


def _broken(pod: PodFacts) -> PodContainer | None:
    """Answer the first container that broke down; None = none did."""
    return next((each for each in pod.everyone if _has_broken_down(each)), None)


def _may_be_explained(pod: PodFacts, broken: PodContainer, now: datetime) -> bool:
    """Tell whether the agent may still say why a container broke down, and in which stage."""
    if pod.agent is None or pod.agent.exit_code is not None or broken.ended_at is None:
        return False
    return timedelta() <= now - broken.ended_at < SAYS_WHY


def _has_broken_down(container: PodContainer) -> bool:
    """Tell whether a container ended for good without having done what it was to do.

    An end without an error is none, unless a health check was to pass: what has ended is not
    healthy.
    """
    if container.exit_code is None:
        return False
    if container.state is ContainerStateName.TERMINATED and not container.restarts:
        return container.exit_code != 0 or container.checked
    given_up = container.restart_count >= CRASHES and container.reason == "CrashLoopBackOff"
    return given_up and container.exit_code != 0


def _overdue(
    enclave: Enclave,
    pod: PodFacts | None,
    now: datetime,
    settings: DecisionSettings,
    waits: str,
) -> tuple[str, str] | None:
    deadline = settings.progress_deadline
    age = now - (enclave.metadata.creation_timestamp or now)
    if age < deadline or _boot_phase(pod, now) is EnclavePhase.READY:
        return None
    what = waits or _unready(pod) or "its Pod"
    return "ProgressDeadlineExceeded", f"Not ready within {_span(deadline)}; it waited for: {what}"


def _exit_message(container: PodContainer) -> str:
    again = f" after {container.restart_count} restarts" if container.restart_count else ""
    reason = container.exit_reason
    why = f" ({reason})" if reason not in {"", "Error"} else ""
    said = container.exit_message.strip()
    tail = f" Its last message: {said}" if said else " It left no message; read its log."
    return (
        f"Container {container.name} ended with exit code {container.exit_code}{why}{again} while "
        f"the enclave started.{tail}"
    )


def _phase(before: EnclaveStatus, pod: PodFacts | None, now: datetime) -> EnclavePhase:
    """Answer the phase; what was ready once stays so, whatever its health says later."""
    return before.phase if before.phase is EnclavePhase.READY else _boot_phase(pod, now)


def _boot_phase(pod: PodFacts | None, now: datetime) -> EnclavePhase:
    if pod is None or pod.phase is PodPhase.PENDING or not pod.containers:
        return EnclavePhase.PENDING
    everyone = (*pod.containers, *((pod.shim,) if pod.shim is not None else ()))
    if not all(each.started_at is not None for each in everyone):
        return EnclavePhase.PENDING
    listens = pod.shim is None or pod.shim.ready
    told = pod.agent is not None and pod.agent.ready
    if told and listens and all(_is_fine(each, now) for each in everyone):
        return EnclavePhase.READY
    return EnclavePhase.STARTED


def _is_fine(container: PodContainer, now: datetime) -> bool:
    """Tell whether a container has started and is well: running and healthy, or finished with 0."""
    if container.state is not ContainerStateName.RUNNING or container.started_at is None:
        return container.exit_code == 0 and not container.checked
    crashed = container.restart_count > 0 and container.exit_code not in {None, 0}
    return not crashed or now - container.started_at >= STEADY


def _wait(pod: PodFacts | None, lacks: str) -> tuple[str, str]:
    """Answer the transient reason that an attempt waits for, if one can be told."""
    if pod is None:
        return ("ApiUnreachable", lacks) if lacks else ("", "")
    if pod.unschedulable:
        return "Unschedulable", f"No node has room for the enclave: {pod.unschedulable}"
    for each in (*pod.side_cars, *pod.everyone):
        if each.state is not ContainerStateName.WAITING:
            continue
        if each.reason in _PULL_TROUBLES:
            detail = each.message or each.reason
            return "ImagePull", f"The image of container {each.name} cannot be pulled: {detail}"
        if each.reason == "CrashLoopBackOff":
            return "", f"{_exit_message(each)} It is started again."
        if each.reason in _START_TROUBLES:
            return "", f"Container {each.name} cannot be started: {each.message or each.reason}"
    return "", _started_again(pod)


def _started_again(pod: PodFacts) -> str:
    """Tell why a part of ours that runs again and is not up ended before; empty = none did."""
    for each in pod.side_cars:
        running = each.state is ContainerStateName.RUNNING
        if running and not each.ready and each.exit_message:
            return f"{_exit_message(each)} It was started again."
    return ""


_PULL_TROUBLES = {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"}
_START_TROUBLES = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}


def _unready(pod: PodFacts | None) -> str:
    waits = (each for each in (pod.containers if pod else ()) if not each.ready)
    return ", ".join(f"container {each.name}" for each in waits)


def _facts(before: EnclaveStatus, pod: PodFacts | None) -> EnclaveStatus:
    """Take the plain facts of a Pod over; they stay when it is gone."""
    if pod is None or (before.pod_uid and pod.uid != before.pod_uid):
        return before
    return before.model_copy(
        update={
            "pod_uid": pod.uid,
            "node": pod.node or before.node,
            "address": pod.address or before.address,
            "boot_stages": boot_stages(pod),
            "measurement": pod.measurement or before.measurement,
            "initdata": pod.initdata or before.initdata,
            "containers": tuple(_state(each) for each in pod.containers),
        }
    )


def _state(container: PodContainer) -> ContainerState:
    waiting = container.state is ContainerStateName.WAITING
    words = (
        (container.reason, container.message)
        if waiting
        else (container.exit_reason, container.exit_message)
    )
    shown = waiting or container.state is ContainerStateName.TERMINATED
    message = ": ".join(each.strip() for each in words if each.strip()) if shown else ""
    return ContainerState(
        name=container.name,
        state=container.state,
        healthy=container.ready if container.checked else None,
        restart_count=container.restart_count,
        exit_code=container.exit_code,
        message=message[:_MESSAGE_LIMIT],
    )


def _span(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    minutes, rest = divmod(seconds, _MINUTE)
    return f"{minutes} min" if minutes and not rest else f"{seconds} s"


def _settled(
    enclave: Enclave,
    facts: EnclaveStatus,
    phase: EnclavePhase,
    reason: str,
    message: str,
    *,
    now: datetime,
) -> EnclaveStatus:
    is_up = phase in {EnclavePhase.STARTED, EnclavePhase.READY}
    ready = phase is EnclavePhase.READY
    usual = "Healthy" if ready else "Starting" if is_up else "Deploying"
    findings = [Finding("Ready", ready, reason or usual, message)]
    if not ready:
        findings.append(Finding("Reconciling", status=True, reason=reason or usual))
    return facts.model_copy(
        update={
            "observed_generation": enclave.metadata.generation,
            "phase": phase,
            "reason": reason,
            "message": message,
            "started_at": facts.started_at or (now if is_up else None),
            "ready_at": facts.ready_at or (now if ready else None),
            "conditions": merge(
                enclave.status.conditions,
                findings,
                generation=enclave.metadata.generation,
                now=now,
            ),
        }
    )


def _failed(
    enclave: Enclave, facts: EnclaveStatus, reason: str, message: str, *, now: datetime
) -> EnclaveStatus:
    return facts.model_copy(
        update={
            "observed_generation": enclave.metadata.generation,
            "phase": EnclavePhase.FAILED,
            "reason": reason,
            "message": message,
            "conditions": merge(
                enclave.status.conditions,
                [
                    Finding("Ready", status=False, reason=reason, message=message),
                    Finding("Stalled", status=True, reason=reason, message=message),
                ],
                generation=enclave.metadata.generation,
                now=now,
            ),
        }
    )
