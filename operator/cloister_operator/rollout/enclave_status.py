"""The status of one attempt: from its Pod to the status of its Enclave. Pure.

The operator evaluates an Enclave whenever its Pod changes, after the time that `reevaluate_after`
returns, and before it decides about the Container. Health is what the enclave's own agent reports:
its readiness, and its message when the boot fails. What only the kubelet knows is evaluated here:
pulls, exit codes, crashes. Both count until the enclave is ready; after that only the loss of its
Pod does.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from cloister_crds.backoff import due
from cloister_crds.kinds.enclave import (
    ContainerState,
    ContainerStateName,
    Enclave,
    EnclavePhase,
    EnclaveStatus,
)
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from cloister_crds.lifecycle.state.observed import DecisionSettings
from cloister_operator.rollout.pod_facts import (
    PodContainer,
    PodFacts,
    PodPhase,
    boot_failure,
    boot_stages,
    expired_certificate,
    measurement_failure,
    sidecar_failure,
)

CERTIFICATE_VALID = "CertificateValid"
"""Condition of an enclave whose certificate has expired; it has none while all is well."""
CRASHES = 5
"""Restarts in the kubelet's backoff (about five minutes) after which a boot has failed."""
STEADY = timedelta(seconds=10)
"""A container that was restarted after an error counts as started after this long."""
EXPLANATION_TIME = timedelta(seconds=3)
"""The agent explains a failed boot at most this long after the container that failed has exited.

The kubelet notices both exits, and may report the container's first.
"""
_MESSAGE_LIMIT = 4096
_MINUTE = 60
_OVER = {EnclavePhase.FAILED, EnclavePhase.ENDED}
_UNDER_WAY = {None, EnclavePhase.PENDING, EnclavePhase.STARTED}

_UNKNOWN_ENDS = {"ContainerStatusUnknown", "Unknown"}
"""Reasons of exits that the kubelet did not see: the node was restarted (kubelet; containerd)."""
_EVICTIONS = {"EvictionByEvictionAPI", "PreemptionByScheduler", "TerminationByKubelet"}
"""Reasons of the condition DisruptionTarget that mean an eviction (Kubernetes, "Disruptions")."""

_OVER_DISK_LIMIT = ("local ephemeral storage limit", "ephemeral local storage usage exceeds")
"""In the kubelet's message when a container, or all of a Pod's, wrote more than their limit."""


class PodAction(StrEnum):
    """What to do about the Pod of an Enclave."""

    CREATE = "create"
    """It has none and needs one."""
    KEEP = "keep"
    """Nothing."""
    DELETE = "delete"
    """It has one and must not."""


def pod_action(enclave: Enclave, pod: PodFacts | None) -> PodAction:
    """Return what to do about an Enclave's Pod. An Enclave has one Pod in its life.

    The Enclave has its newest status; `pod` is None when there is none.
    """
    if enclave.status.phase in _OVER or enclave.metadata.deletion_timestamp is not None:
        return PodAction.DELETE if pod is not None and not pod.deleting else PodAction.KEEP
    if pod is None and not enclave.status.pod_uid:
        return PodAction.CREATE
    return PodAction.KEEP


def evaluate_enclave(
    enclave: Enclave,
    pod: PodFacts | None,
    now: datetime,
    settings: DecisionSettings,
    *,
    missing: str = "",
    refused: str = "",
) -> EnclaveStatus:
    """Return the next status of an attempt.

    Parameters
    ----------
    enclave
        The Enclave with its present status.
    pod
        Its Pod; None if there is none. A Pod that is in the status and not in the store was read by
        a live GET.
    now
        The present, in UTC.
    missing
        Why it has no Pod: the API's address, which it needs, is not known; empty if it is known.
    refused
        Why the API server permanently refuses its children; empty if it accepts them.

    Returns
    -------
    EnclaveStatus
        The complete next status, equal to the present one when nothing changed. A failure stays
        one.
    """
    before = enclave.status
    # Final: a Pod that is being deleted would otherwise look like a failure.
    if before.phase in _OVER or enclave.metadata.deletion_timestamp is not None:
        return before
    facts = _facts(before, pod)
    # A sidecar knows the cause; the loss of the Pod is only what follows from it.
    failure = _sidecar_failure(before, pod) or _loss(before, pod)
    if failure is None and refused and pod is None:
        failure = ("EnclaveRefused", refused)
    if failure is None and before.phase is not EnclavePhase.READY:
        wait = _wait(pod, missing)
        failure = _boot_failure(pod, now) or _overdue(enclave, pod, now, settings, wait[1])
    if failure is not None:
        return _failed(enclave, facts, *failure, now=now)
    phase = _phase(before, pod, now)
    reason, message = ("", "") if phase is EnclavePhase.READY else _wait(pod, missing)
    expired = expired_certificate(pod)
    return _settled(enclave, facts, phase, reason, message, expired=expired, now=now)


def reevaluate_after(
    enclave: Enclave,
    pod: PodFacts | None,
    now: datetime,
    settings: DecisionSettings,
) -> timedelta | None:
    """Return when an attempt must be evaluated again although its Pod does not change.

    Parameters
    ----------
    pod
        Its Pod; None if there is none.
    now
        The present, in UTC.

    Returns
    -------
    timedelta | None
        None when only a change of the Pod can change the status.
    """
    if enclave.status.phase in {*_OVER, EnclavePhase.READY}:
        return None
    since, deadline = _deadline(enclave, pod, now, settings)
    times = [since + deadline]
    for each in pod.containers if pod is not None else ():
        if each.started_at is None or each.state is not ContainerStateName.RUNNING:
            continue
        # A container that was restarted counts as started once it has run steadily.
        if each.restart_count:
            times.append(each.started_at + STEADY)
    broken = _failed_container(pod) if pod is not None else None
    # The agent explains a failed boot a moment after the container has exited.
    if broken is not None and broken.ended_at is not None:
        times.append(broken.ended_at + EXPLANATION_TIME)
    waits = [wait for at in times if (wait := due(at, now)) is not None]
    return min(waits, default=None)


def is_under_way(before: EnclaveStatus, after: EnclaveStatus) -> bool:
    """Return whether an attempt was starting and has not failed: its next change matters more.

    That is its next step, and of one that is ready that it serves.
    """
    return before.phase in _UNDER_WAY and after.phase in {*_UNDER_WAY, EnclavePhase.READY}


def _sidecar_failure(before: EnclaveStatus, pod: PodFacts | None) -> tuple[str, str] | None:
    """Return why the boot failed when a sidecar that the boot needs exited with an error.

    The Pod ends with it, and would else be taken for lost.
    """
    if pod is None or pod.phase is not PodPhase.FAILED or before.phase is EnclavePhase.READY:
        return None
    broken = (each for each in pod.sidecars if _container_failed(each))
    return measurement_failure(pod) or next((_breakdown(pod, each) for each in broken), None)


def _breakdown(pod: PodFacts, container: PodContainer) -> tuple[str, str]:
    """Return why a container exited permanently: our sidecars may report it by their exit code."""
    failure = sidecar_failure(container) if container in pod.sidecars else None
    return failure or ("BootFailed", _exit_message(container))


def _loss(before: EnclaveStatus, pod: PodFacts | None) -> tuple[str, str] | None:
    """Return why the Pod is lost: deleted, ended as a whole, or terminating; None if it is not."""
    if pod is None or (before.pod_uid and pod.uid != before.pod_uid):
        where = f" on node {before.node}" if before.node else ""
        return ("PodLost", f"The Pod{where} was deleted.") if before.pod_uid else None
    text = f": {pod.message.strip()}" if pod.message else "."
    if pod.node_gone or pod.disruption == "DeletionByTaintManager":
        return "NodeLost", f"Node {pod.node} is gone{text}"
    if pod.reason == "Evicted" or pod.disruption in _EVICTIONS:
        return "Evicted", f"The Pod was evicted from node {pod.node}{text}{_remedy(pod.message)}"
    ended = pod.phase in {PodPhase.FAILED, PodPhase.SUCCEEDED}
    if ended and (before.phase is EnclavePhase.READY or not _has_failed_by_itself(pod)):
        return "PodLost", f"The Pod ended as a whole ({pod.reason or pod.phase}){text}"
    return ("PodLost", "The Pod is being deleted.") if pod.deleting else None


def _remedy(eviction: str) -> str:
    """Return what to do about an eviction that the enclave itself caused; empty if nothing."""
    if not any(words in eviction for words in _OVER_DISK_LIMIT):
        return ""
    return (
        " Files outside of volumes and tmpfs, and logs, count: write less of them, or write to a "
        "volume or tmpfs, which is memory; the limit is the Host's sizing.ephemeralStorageMB."
    )


def _has_failed_by_itself(pod: PodFacts) -> bool:
    """Return whether a Pod ended because a container of the file did, not by eviction."""
    if pod.phase is not PodPhase.FAILED or pod.reason or pod.deleting:
        return False
    if boot_failure(pod) is not None:
        return True
    broken = (each for each in pod.containers if _container_failed(each))
    return any(each.exit_reason not in _UNKNOWN_ENDS for each in broken)


def _boot_failure(pod: PodFacts | None, now: datetime) -> tuple[str, str] | None:
    if pod is None:
        return None
    failure = boot_failure(pod) or measurement_failure(pod)
    if failure is not None:
        return failure
    broken = _failed_container(pod)
    if broken is None or _may_be_explained(pod, broken, now):
        return None
    return _breakdown(pod, broken)


def _failed_container(pod: PodFacts) -> PodContainer | None:
    """Return the first container that failed; None if none did."""
    return next((each for each in pod.all_containers if _container_failed(each)), None)


def _may_be_explained(pod: PodFacts, broken: PodContainer, now: datetime) -> bool:
    """Return whether the agent may still report why a container failed, and in which stage."""
    if pod.agent is None or pod.agent.exit_code is not None or broken.ended_at is None:
        return False
    return timedelta() <= now - broken.ended_at < EXPLANATION_TIME


def _container_failed(container: PodContainer) -> bool:
    """Return whether a container exited permanently and failed.

    An exit without an error is not a failure, unless there is a health check to pass: what has
    exited is not healthy.
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
    since, deadline = _deadline(enclave, pod, now, settings)
    if now - since < deadline or _boot_phase(pod, now) is EnclavePhase.READY:
        return None
    cause = waits or _unready(pod) or "its Pod"
    late = (
        f"Its containers did not all start within {_span(deadline)}"
        if _began(enclave.status, pod, now) is None
        else f"Not ready within {_span(deadline)} of its start"
    )
    return "ProgressDeadlineExceeded", f"{late}; it waited for: {cause}"


def _deadline(
    enclave: Enclave, pod: PodFacts | None, now: datetime, settings: DecisionSettings
) -> tuple[datetime, timedelta]:
    """Return since when an attempt waits for its next step, and how long it may."""
    began = _began(enclave.status, pod, now)
    if began is None:
        return enclave.metadata.creation_timestamp or now, settings.pull_deadline
    allowance = timedelta(seconds=enclave.spec.summary.boot_allowance_seconds)
    return began, settings.progress_deadline + allowance


def _began(before: EnclaveStatus, pod: PodFacts | None, now: datetime) -> datetime | None:
    """Return since when all containers of an attempt have started; None if they have not."""
    if before.started_at is not None or pod is None:
        return before.started_at
    if _boot_phase(pod, now) is EnclavePhase.PENDING:
        return None
    everyone = (*pod.containers, *((pod.shim,) if pod.shim is not None else ()))
    return max((each.started_at for each in everyone if each.started_at is not None), default=now)


def _exit_message(container: PodContainer) -> str:
    again = f" after {container.restart_count} restarts" if container.restart_count else ""
    reason = container.exit_reason
    why = f" ({reason})" if reason not in {"", "Error"} else ""
    last = container.exit_message.strip()
    tail = f" Its last message: {last}" if last else " It left no message; read its log."
    return (
        f"Container {container.name} terminated with exit code {container.exit_code}{why}{again} "
        f"while the enclave started.{tail}"
    )


def _phase(before: EnclaveStatus, pod: PodFacts | None, now: datetime) -> EnclavePhase:
    """Return the phase; what was ready once stays ready, whatever its health is later."""
    return before.phase if before.phase is EnclavePhase.READY else _boot_phase(pod, now)


def _boot_phase(pod: PodFacts | None, now: datetime) -> EnclavePhase:
    if pod is None or pod.phase is PodPhase.PENDING or not pod.containers:
        return EnclavePhase.PENDING
    everyone = (*pod.containers, *((pod.shim,) if pod.shim is not None else ()))
    if not all(each.started_at is not None for each in everyone):
        return EnclavePhase.PENDING
    listens = pod.shim is None or pod.shim.ready
    booted = pod.agent is not None and pod.agent.ready
    if booted and listens and all(_is_fine(each, now) for each in everyone):
        return EnclavePhase.READY
    return EnclavePhase.STARTED


def _is_fine(container: PodContainer, now: datetime) -> bool:
    """Return whether a container has started and is well: running and healthy, or exited with 0."""
    if container.state is not ContainerStateName.RUNNING or container.started_at is None:
        return container.exit_code == 0 and not container.checked
    crashed = container.restart_count > 0 and container.exit_code not in {None, 0}
    return not crashed or now - container.started_at >= STEADY


def _wait(pod: PodFacts | None, missing: str) -> tuple[str, str]:
    """Return the transient reason and the message of what an attempt waits for, as far as known."""
    if pod is None:
        return ("ApiUnreachable", missing) if missing else ("", "")
    if pod.unschedulable:
        return "Unschedulable", f"No node has room for the enclave: {pod.unschedulable}"
    for each in (*pod.sidecars, *pod.all_containers):
        if each.state is not ContainerStateName.WAITING:
            continue
        if each.reason in _PULL_ERRORS:
            detail = each.message or each.reason
            return "ImagePull", f"The image of container {each.name} cannot be pulled: {detail}"
        if each.reason == "CrashLoopBackOff":
            return "", f"{_exit_message(each)} It is restarted."
        if each.reason in _START_ERRORS:
            return "", f"Container {each.name} cannot be started: {each.message or each.reason}"
    return "", _restarted(pod)


def _restarted(pod: PodFacts) -> str:
    """Return why a sidecar that runs again exited before; empty if none did."""
    for each in pod.sidecars:
        if each.state is ContainerStateName.RUNNING and each.exit_message:
            return f"{_exit_message(each)} It was restarted."
    return ""


_PULL_ERRORS = {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"}
_START_ERRORS = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}


def _unready(pod: PodFacts | None) -> str:
    waits = (each for each in (pod.containers if pod else ()) if not each.ready)
    return ", ".join(f"container {each.name}" for each in waits)


def _facts(before: EnclaveStatus, pod: PodFacts | None) -> EnclaveStatus:
    """Copy the plain facts of a Pod into the status; they stay when it is gone."""
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
            "guest_rules": pod.guest_rules or before.guest_rules,
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
    expired: str,
    now: datetime,
) -> EnclaveStatus:
    is_up = phase in {EnclavePhase.STARTED, EnclavePhase.READY}
    ready = phase is EnclavePhase.READY
    usual = "Healthy" if ready else "Starting" if is_up else "Deploying"
    findings = [ConditionUpdate("Ready", ready, reason or usual, message)]
    if not ready:
        findings.append(ConditionUpdate("Reconciling", status=True, reason=reason or usual))
    elif expired:
        # It stays Healthy: what runs in it does, and rollouts judge that.
        text = f"Clients refuse the certificate: {expired}. The enclave continues to request one."
        findings.append(
            ConditionUpdate(
                CERTIFICATE_VALID, status=False, reason="CertificateExpired", message=text
            )
        )
    return facts.model_copy(
        update={
            "observed_generation": enclave.metadata.generation,
            "phase": phase,
            "reason": reason,
            "message": message,
            # The first time counts: a restart of a container does not move it.
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
                    ConditionUpdate("Ready", status=False, reason=reason, message=message),
                    ConditionUpdate("Stalled", status=True, reason=reason, message=message),
                ],
                generation=enclave.metadata.generation,
                now=now,
            ),
        }
    )
