"""Reads the projection of a Pod into the facts that a judgement needs.

Used by the passes of Enclaves and Containers; pure.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from cloister_crds.config import object_name
from cloister_crds.kinds.enclave import ContainerStateName
from cloister_crds.lifecycle.pod import PodContainer, PodFacts, PodPhase
from cloister_operator.enclave.pod import ALLOWANCE_ANNOTATION
from cloister_operator.enclave.sidecars import SHIM, names_of_ours

__all__ = ["node_is_gone", "read_pod"]

_SHIM_ALLOWANCE = timedelta(minutes=1)
"""Time within which the shim should listen."""
_RESTARTING = {"Always", "OnFailure"}
_STATES = {
    "waiting": ContainerStateName.WAITING,
    "running": ContainerStateName.RUNNING,
    "terminated": ContainerStateName.TERMINATED,
}


def read_pod(
    body: Mapping[str, Any], containers: Collection[str], *, node_gone: bool = False
) -> PodFacts:
    """Read a Pod.

    Parameters
    ----------
    body
        Projection of the Pod.
    containers
        Names of the file's containers, in its order; the others are ours.
    node_gone
        Whether the Pod's node is gone (`node_is_gone`).
    """
    metadata, spec, status = body["metadata"], body.get("spec", {}), body.get("status", {})
    told = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    statuses = {each["name"]: each for each in told}
    policies = {each["name"]: each.get("restartPolicy", "") for each in spec.get("containers", ())}
    allowances = _allowances(metadata)
    names = {object_name(name): name for name in containers}
    ours = {name: car for name, car in names_of_ours(containers).items() if name in policies}
    read = {
        name: _container(
            names.get(name, name), statuses.get(name, {}), policies[name], allowances.get(name)
        )
        for name in policies
    }
    conditions = {each["type"]: each for each in status.get("conditions", ())}
    return PodFacts(
        uid=metadata["uid"],
        phase=PodPhase(status.get("phase") or PodPhase.PENDING),
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        deleting="deletionTimestamp" in metadata,
        node=spec.get("nodeName", ""),
        node_gone=node_gone,
        address=_address(status),
        unschedulable=_unschedulable(conditions.get("PodScheduled", {})),
        disruption=_disruption(conditions.get("DisruptionTarget", {})),
        containers=tuple(read[name] for name in names if name in read),
        shim=next((_shim(read[name]) for name, car in ours.items() if car is SHIM), None),
        side_cars=tuple(read[name] for name, car in ours.items() if car is not SHIM),
    )


def node_is_gone(pod: Mapping[str, Any], node: Mapping[str, Any] | None) -> bool:
    """Tell whether the node of a Pod is lost, and the Pod with it.

    Parameters
    ----------
    pod
        Projection of the Pod.
    node
        Projection of its node; None = there is no such node.

    Returns
    -------
    bool
        True when the Pod is bound to a node that does not exist, or that is not ready while the
        Pod is being deleted (the taint manager gave it up; Kubernetes, "Nodes").
    """
    if not pod.get("spec", {}).get("nodeName"):
        return False
    if node is None:
        return True
    conditions = node.get("status", {}).get("conditions", ())
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return not ready and "deletionTimestamp" in pod["metadata"]


def _allowances(metadata: Mapping[str, Any]) -> dict[str, timedelta]:
    """Read the annotation that `build_pod` wrote; none for Pods that somebody else made."""
    text = metadata.get("annotations", {}).get(ALLOWANCE_ANNOTATION, "{}")
    try:
        found = json.loads(text)
        return {name: timedelta(seconds=float(seconds)) for name, seconds in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _container(
    name: str, status: Mapping[str, Any], policy: str, allowance: timedelta | None
) -> PodContainer:
    """Read one container; without a status it waits."""
    state = status.get("state") or {"waiting": {}}
    word = next(iter(state))
    detail = state[word] or {}
    last = (status.get("lastState") or {}).get("terminated") or {}
    end = detail if word == "terminated" else last
    started = detail.get("startedAt") or last.get("startedAt")
    return PodContainer(
        name=name,
        state=_STATES.get(word, ContainerStateName.WAITING),
        reason=detail.get("reason", ""),
        message=detail.get("message", ""),
        started_at=datetime.fromisoformat(started) if started else None,
        exit_code=end.get("exitCode"),
        exit_reason=end.get("reason", ""),
        exit_message=end.get("message", ""),
        restart_count=status.get("restartCount", 0),
        restarts=policy in _RESTARTING,
        ready=bool(status.get("ready")),
        allowance=allowance,
    )


def _shim(container: PodContainer) -> PodContainer:
    """Answer the shim as a container with a health check: it counts once it listens."""
    return replace(container, allowance=_SHIM_ALLOWANCE)


def _address(status: Mapping[str, Any]) -> str:
    """Answer the first IPv4 address."""
    addresses = [each["ip"] for each in status.get("podIPs", ()) if "ip" in each]
    every = [*addresses, status.get("podIP", "")]
    return next((each for each in every if each and ":" not in each), "")


def _unschedulable(condition: Mapping[str, Any]) -> str:
    """Answer why the scheduler finds no node; empty = it does, or has not tried."""
    if condition.get("status") == "False" and condition.get("reason") == "Unschedulable":
        return str(condition.get("message") or "no node fits")
    return ""


def _disruption(condition: Mapping[str, Any]) -> str:
    """Answer why the Pod is being disrupted (Kubernetes, "Pod disruption conditions")."""
    return str(condition.get("reason") or "") if condition.get("status") == "True" else ""
