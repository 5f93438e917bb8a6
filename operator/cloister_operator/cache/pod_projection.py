"""Reads the projections of Pods and TLSRoutes into the facts that decisions depend on. Pure."""

import json
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

from cloister_crds.config import object_name
from cloister_crds.kinds.enclave import ContainerStateName
from cloister_crds.lifecycle.state.observed import Gateway, RouteFacts, RouteState
from cloister_operator.enclave.built import SKIPPED_ANNOTATION
from cloister_operator.enclave.guest_config.measurement import (
    INITDATA_ANNOTATION,
    MEASUREMENT_ANNOTATION,
    RULES_ANNOTATION,
)
from cloister_operator.enclave.sidecars import AGENT, SHIM, sidecar_names
from cloister_operator.rollout.pod_facts import PodContainer, PodFacts, PodPhase

_RESTARTING = {"Always", "OnFailure"}
_STATES = {
    "waiting": ContainerStateName.WAITING,
    "running": ContainerStateName.RUNNING,
    "terminated": ContainerStateName.TERMINATED,
}


def read_pod(
    body: Mapping[str, Any], containers: Collection[str], *, node_gone: bool = False
) -> PodFacts:
    """Read the projection of a Pod.

    Parameters
    ----------
    containers
        Names of the file's containers, in its order; the others are sidecars.
    node_gone
        Whether the Pod's node is lost (`node_is_gone`).
    """
    metadata, spec, status = body["metadata"], body.get("spec", {}), body.get("status", {})
    listed = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    statuses = {each["name"]: each for each in listed}
    specs = {each["name"]: each for each in spec.get("containers", ())}
    names = {object_name(name): name for name in containers}
    ours = {name: car for name, car in sidecar_names(containers).items() if name in specs}
    read = {
        name: _container(names.get(name, name), each, statuses.get(name, {}))
        for name, each in specs.items()
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
        measurement=metadata.get("annotations", {}).get(MEASUREMENT_ANNOTATION, ""),
        initdata=metadata.get("annotations", {}).get(INITDATA_ANNOTATION, ""),
        guest_rules=metadata.get("annotations", {}).get(RULES_ANNOTATION, ""),
        address=_address(status),
        unschedulable=_unschedulable(conditions.get("PodScheduled", {})),
        disruption=_disruption(conditions.get("DisruptionTarget", {})),
        containers=tuple(read[name] for name in names if name in read),
        shim=next((read[name] for name, car in ours.items() if car is SHIM), None),
        agent=next((read[name] for name, car in ours.items() if car is AGENT), None),
        skipped_stages=_skipped_stages(metadata),
        sidecars=tuple(read[name] for name, car in ours.items() if car not in {SHIM, AGENT}),
    )


def node_is_gone(pod: Mapping[str, Any], node: Mapping[str, Any] | None) -> bool:
    """Return whether the node of a Pod is lost, and the Pod with it.

    Parameters
    ----------
    node
        Projection of its node; None if it does not exist.

    Returns
    -------
    bool
        True when the Pod is bound to a node that does not exist, or that is not ready while the
        Pod is being deleted (the taint manager evicted it; Kubernetes, "Nodes").
    """
    if not pod.get("spec", {}).get("nodeName"):
        return False
    if node is None:
        return True
    conditions = node.get("status", {}).get("conditions", ())
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return not ready and "deletionTimestamp" in pod["metadata"]


def _skipped_stages(metadata: Mapping[str, Any]) -> frozenset[str]:
    """Read the annotation of our Pods; empty for Pods that somebody else created."""
    text = metadata.get("annotations", {}).get(SKIPPED_ANNOTATION, "[]")
    try:
        found = json.loads(text)
    except ValueError:
        return frozenset()
    return frozenset(str(each) for each in found) if isinstance(found, list) else frozenset()


def _container(name: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> PodContainer:
    """Read one container; without a status it is waiting."""
    state = status.get("state") or {"waiting": {}}
    word = next(iter(state))
    detail = state[word] or {}
    last = (status.get("lastState") or {}).get("terminated") or {}
    end = detail if word == "terminated" else last
    started = detail.get("startedAt") or last.get("startedAt")
    ended = end.get("finishedAt")
    return PodContainer(
        name=name,
        state=_STATES.get(word, ContainerStateName.WAITING),
        reason=detail.get("reason", ""),
        message=detail.get("message", ""),
        started_at=datetime.fromisoformat(started) if started else None,
        ended_at=datetime.fromisoformat(ended) if ended else None,
        exit_code=end.get("exitCode"),
        exit_reason=end.get("reason", ""),
        exit_message=end.get("message", ""),
        restart_count=status.get("restartCount", 0),
        restarts=spec.get("restartPolicy", "") in _RESTARTING,
        ready=bool(status.get("ready")),
        checked="readinessProbe" in spec,
    )


def _address(status: Mapping[str, Any]) -> str:
    """Return the first IPv4 address; empty if there is none."""
    addresses = [each["ip"] for each in status.get("podIPs", ()) if "ip" in each]
    every = [*addresses, status.get("podIP", "")]
    return next((each for each in every if each and ":" not in each), "")


def _unschedulable(condition: Mapping[str, Any]) -> str:
    """Return why the scheduler finds no node; empty if it does, or has not tried."""
    if condition.get("status") == "False" and condition.get("reason") == "Unschedulable":
        return str(condition.get("message") or "no node fits")
    return ""


def _disruption(condition: Mapping[str, Any]) -> str:
    """Return why the Pod is being disrupted (Kubernetes, "Pod disruption conditions")."""
    return str(condition.get("reason") or "") if condition.get("status") == "True" else ""


_ACCEPTED, _RESOLVED = "Accepted", "ResolvedRefs"


def read_route(body: Mapping[str, Any], namespace: str) -> RouteFacts:
    """Read the projection of a TLSRoute that should lead to a Container of a namespace."""
    metadata, spec = body["metadata"], body["spec"]
    parents = [_gateway(each, metadata["namespace"]) for each in spec.get("parentRefs") or ()]
    gateway = parents[0] if len(parents) == 1 else None
    backends = [each for rule in spec.get("rules") or () for each in rule.get("backendRefs") or ()]
    single = len(backends) == 1 and backends[0].get("namespace") == namespace
    state, message = _standing(body, gateway)
    return RouteFacts(
        hostnames=tuple(spec.get("hostnames") or ()),
        service=backends[0]["name"] if single else "",
        gateway=gateway,
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        state=state,
        message=message,
    )


def _gateway(reference: Mapping[str, Any], namespace: str) -> Gateway:
    """Read the Gateway that a reference names, by default in the route's own namespace."""
    return Gateway(
        reference["name"],
        reference.get("namespace") or namespace,
        reference.get("sectionName") or "",
    )


def _standing(body: Mapping[str, Any], gateway: Gateway | None) -> tuple[RouteState, str]:
    """Evaluate the conditions that gateway controllers wrote about the present generation."""
    conditions = [
        each for each in _conditions(body, gateway) if each["type"] in {_ACCEPTED, _RESOLVED}
    ]
    for each in conditions:
        if each["status"] == "False":
            message = each.get("message") or "no reason is given"
            return RouteState.REFUSED, f"{each.get('reason', each['type'])}: {message}"
    accepted = {each["type"] for each in conditions if each["status"] == "True"}
    if _ACCEPTED in accepted:
        return RouteState.ACCEPTED, ""
    return RouteState.PENDING, ""


def _conditions(body: Mapping[str, Any], gateway: Gateway | None) -> Iterator[Mapping[str, Any]]:
    """Return the conditions about a Gateway; those of an older generation do not count."""
    metadata = body["metadata"]
    generation = metadata.get("generation", 0)
    for parent in body["status"]["parents"]:
        if _gateway(parent["parentRef"], metadata["namespace"]) != gateway:
            continue
        for each in parent.get("conditions") or ():
            if each.get("observedGeneration", generation) >= generation:
                yield each
