"""The Pod of an Enclave: the containers of the file, each behind the guest, and our own parts.

Source of the mapping: the format of the configuration file on one side, Kubernetes' Pod API (1.35
or newer: pod-level resources, restartPolicy of single containers, user namespaces) on the other.
The kubelet starts nothing of the tenant's by itself: program, health check and stop are the
guest's to carry out. What cannot be enforced is listed by
`cloister_operator.enclave.pod.unenforced`.
"""

import json
from typing import Any

from cloister_crds.config import ContainerConfig, Restart, object_name
from cloister_crds.kinds.host import HostSpec
from cloister_crds.lifecycle.admission.host_selection import maps_users
from cloister_operator.enclave.container.devices import granted, held
from cloister_operator.enclave.container.document import (
    GUEST_DIRECTORY,
    SPEC_DIRECTORY,
    document_key,
    stop_timeout,
)
from cloister_operator.enclave.container.environment import container_environment
from cloister_operator.enclave.container.readiness_probe import readiness_probe
from cloister_operator.enclave.guest_config.agent import agent_container, skipped_stages
from cloister_operator.enclave.guest_config.certificate import certificate_container, is_signed
from cloister_operator.enclave.guest_config.key_gate import gate_container
from cloister_operator.enclave.guest_config.measurement import annotations, measurement_of
from cloister_operator.enclave.guest_config.models import models_container
from cloister_operator.enclave.guest_config.network import keep_container, net_container
from cloister_operator.enclave.guest_config.ssh import ssh_container
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.pod.resources import container_resources, pod_resources
from cloister_operator.enclave.pod.shim import shim_container
from cloister_operator.enclave.pod.volumes import PodVolumes, pod_volumes
from cloister_operator.enclave.sidecars import (
    AGENT,
    CERTIFICATE,
    GATE,
    GUEST,
    INSTALL,
    KEEP,
    MODELS,
    NET,
    SHIM,
    SSH,
    isolates,
    name_of,
    needs_gate,
    unprivileged,
)
from cloister_operator.enclave.tenant.priority_class import SUCCESSOR

__all__ = ["SKIPPED_ANNOTATION", "build_pod", "grace_period"]

SKIPPED_ANNOTATION = "cloister.dev/skipped-stages"
"""Annotation of the Pod: JSON list of the stages of the boot in which nothing is to be done. It
spares whoever judges the Pod another read of the file."""

_LAUNCH = ("SYS_ADMIN", "NET_ADMIN", "SETPCAP", "SETUID", "SETGID")
"""Capabilities that the guest has until it becomes the container's program. In the Pod's user
namespace they are rights over the Pod alone."""

_RESTART_POLICIES = {
    Restart.NO: "Never",
    Restart.ALWAYS: "Always",
    Restart.ON_FAILURE: "OnFailure",
    Restart.UNLESS_STOPPED: "Always",
}


def build_pod(plan: EnclavePlan, settings: BuildSettings) -> dict[str, Any]:
    """Build the Pod.

    Returns
    -------
    dict[str, Any]
        Manifest for one create; a running Pod is never changed.
    """
    volumes = pod_volumes(plan, settings.service)
    containers = [
        _container(plan, index, each, volumes.mounts.get(each.name, []))
        for index, each in enumerate(plan.config.containers)
    ]
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "containers": [*containers, *_beside(plan, settings, volumes)],
        "enableServiceLinks": False,
        **_pulls(plan),
        **_priority(plan),
        "initContainers": _before(plan, settings, volumes),
        "resources": pod_resources(plan.config, plan.host),
        "restartPolicy": "Never",
        "securityContext": {
            "seccompProfile": {"type": "RuntimeDefault"},
            # Else the groups of the image's root would be added to every user of the file.
            "supplementalGroupsPolicy": "Strict",
        },
        "terminationGracePeriodSeconds": grace_period(plan.config.containers),
        "volumes": volumes.volumes,
        **_placement(plan.host.spec),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **plan.metadata(plan.name),
            "annotations": {
                SKIPPED_ANNOTATION: json.dumps(skipped_stages(plan)),
                **annotations(measurement_of(plan, settings)),
            },
        },
        "spec": spec,
    }


def grace_period(containers: tuple[ContainerConfig, ...]) -> int:
    """Return the seconds that the Pod has to stop: the largest stop_timeout, at least one."""
    return max(1, *(stop_timeout(each) for each in containers))


def _before(
    plan: EnclavePlan, settings: BuildSettings, volumes: PodVolumes
) -> list[dict[str, Any]]:
    """Build what stands before the containers of the file, in its order."""
    install = {
        "name": name_of(INSTALL, plan.names),
        "image": settings.guest_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/guest", "install", GUEST_DIRECTORY],
        "securityContext": unprivileged(INSTALL),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": volumes.ours[INSTALL],
    }
    if devices := held(plan):
        install["resources"] = {"limits": devices}
    before = [install, keep_container(plan, settings, volumes.ours[KEEP])]
    if isolates(plan.host):
        before.append(net_container(plan, settings, volumes.ours[NET]))
    before.append(agent_container(plan, settings, volumes.ours[AGENT]))
    if is_signed(plan):
        before.append(certificate_container(plan, settings, volumes.ours[CERTIFICATE]))
    if plan.config.models:
        before.append(models_container(plan, settings, volumes.ours[MODELS]))
    if needs_gate(plan.config.shim):
        before.append(gate_container(plan, settings, volumes.ours[GATE]))
    return before


def _beside(
    plan: EnclavePlan, settings: BuildSettings, volumes: PodVolumes
) -> list[dict[str, Any]]:
    """Build what stands beside the containers of the file."""
    shim = shim_container(plan, settings, volumes.ours[SHIM])
    if not plan.lets_people_in:
        return [shim]
    return [shim, ssh_container(plan, settings, volumes.ours[SSH])]


def _pulls(plan: EnclavePlan) -> dict[str, Any]:
    """Name the organization's credentials; the kubelet reads them at each pull."""
    names = plan.enclave.spec.pull_secrets
    return {"imagePullSecrets": [{"name": name} for name in names]} if names else {}


def _priority(plan: EnclavePlan) -> dict[str, Any]:
    """Let a Pod go first that waits for the GPUs of its predecessor."""
    return {"priorityClassName": SUCCESSOR} if plan.enclave.spec.stop_first else {}


def _placement(host: HostSpec) -> dict[str, Any]:
    """Return where the Pod may run: only what the Host says is set."""
    # Without a user namespace the launch capabilities are the node's, if only for a moment.
    placement: dict[str, Any] = {"hostUsers": False} if maps_users(host) else {}
    if host.runtime_class_name:
        placement["runtimeClassName"] = host.runtime_class_name
    if host.node_selector:
        placement["nodeSelector"] = {each.name: each.value for each in host.node_selector}
    if host.tolerations:
        placement["tolerations"] = [
            {key: value for key, value in each.wire().items() if value != ""}
            for each in host.tolerations
        ]
    return placement


def _container(
    plan: EnclavePlan, index: int, spec: ContainerConfig, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the container of one entry of the file; keys without a value are left out."""
    document = f"{SPEC_DIRECTORY}/{document_key(index)}"

    def guest(command: str) -> list[str]:
        return [GUEST, command, "-spec", document]

    parts: dict[str, Any] = {
        "name": object_name(spec.name),
        "image": plan.facts(spec).image,
        "imagePullPolicy": "IfNotPresent",
        "command": guest("exec"),
        "workingDir": spec.working_dir,
        "env": container_environment(plan, spec),
        "lifecycle": {"preStop": {"exec": {"command": guest("stop")}}},
        "resources": container_resources(spec, granted(plan, spec)),
        "readinessProbe": readiness_probe(spec.healthcheck, guest("probe")),
        "restartPolicy": _RESTART_POLICIES[spec.restart],
        "securityContext": _security(spec),
        "volumeMounts": mounts,
    }
    return {key: value for key, value in parts.items() if value not in (None, [], {}, "")}


def _security(spec: ContainerConfig) -> dict[str, Any]:
    """Return what the guest starts with: the user of the file comes when it has given this up."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"add": list(dict.fromkeys((*_LAUNCH, *spec.cap_add))), "drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": spec.read_only,
        "runAsGroup": 0,
        "runAsUser": 0,
    }
