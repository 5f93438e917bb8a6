"""The Pod of an Enclave: the containers of the file, our sidecars and the shim."""

from collections.abc import Iterator, Sequence
from typing import Any

from cloister_crds.config import ContainerConfig, Restart, ServiceConfig, object_name
from cloister_crds.config.effective import has_health_check
from cloister_crds.kinds.host import HostSpec
from cloister_crds.lifecycle.admission.host_selection import maps_users
from cloister_operator.enclave import paths
from cloister_operator.enclave.container import (
    SHIM_PATH,
    UNLIMITED,
    VISIBLE_DEVICES,
    agent_probe,
    container_claims,
    container_environment,
    device_limits,
    document_key,
    has_exact_limit,
    health_path,
    pod_claims,
    stop_timeout,
    unassigned_gpu_limits,
)
from cloister_operator.enclave.guest_config.agent import agent_container
from cloister_operator.enclave.guest_config.certificate import (
    certificate_container,
    gate_container,
    is_signed,
)
from cloister_operator.enclave.guest_config.models import models_container
from cloister_operator.enclave.guest_config.network import keep_container, net_container
from cloister_operator.enclave.guest_config.ssh import ssh_container
from cloister_operator.enclave.network.addresses import SHIM_PORT
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.pod.resources import container_resources, limit_disk, pod_resources
from cloister_operator.enclave.pod.volumes import PodVolumes, pod_volumes
from cloister_operator.enclave.shim.encrypted_bodies import bodies_container
from cloister_operator.enclave.sidecars import (
    AGENT,
    CERTIFICATE,
    EHBP,
    GATE,
    KEEP,
    MODELS,
    NET,
    SHIM,
    SSH,
    isolates_containers,
    needs_key_gate,
    sidecar_name,
    unprivileged,
)
from cloister_operator.enclave.tenant import PRIORITY_CLASS


def shim_container(
    plan: EnclavePlan, settings: BuildSettings, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the container.

    Returns
    -------
    dict[str, Any]
        An entry of ``spec.containers``. It is always restarted, and ready once it listens, which it
        does when it has certificates.
    """
    return {
        "name": sidecar_name(SHIM, plan.names),
        "image": settings.shim_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/cloister-shim", "-config", f"{paths.SHIM_CONFIG}/{paths.SHIM_KEY}"],
        "workingDir": "/",
        "ports": [{"name": "https", "containerPort": SHIM_PORT}],
        **agent_probe(SHIM_PATH),
        "restartPolicy": "Always",
        "securityContext": unprivileged(SHIM),
        # Why it was not started. It logs no request.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


_STOP_SIGNAL = "SIGTERM"

_LAUNCH = ("SYS_ADMIN", "NET_ADMIN", "SETPCAP", "SETUID", "SETGID")
"""Capabilities that the guest has until it becomes the container's program. In the Pod's user
namespace they are privileges over the Pod only."""

_RESTART_POLICIES = {
    Restart.NO: "Never",
    Restart.ALWAYS: "Always",
    Restart.ON_FAILURE: "OnFailure",
    Restart.UNLESS_STOPPED: "Always",
}


def pod_spec(plan: EnclavePlan, settings: BuildSettings) -> dict[str, Any]:
    """Build the spec of the Pod.

    Returns
    -------
    dict[str, Any]
        It leaves out what the API server takes for granted, but for imagePullPolicy: that of
        ``:latest@sha256:…`` would be Always.
    """
    volumes = pod_volumes(plan, plan.service(settings))
    containers = [
        _container(plan, index, each, volumes.mounts.get(each.name, []))
        for index, each in enumerate(plan.config.containers)
    ]
    return {
        "automountServiceAccountToken": False,
        "containers": _limited(
            [
                *_first_containers(plan, settings, volumes),
                *containers,
                *_last_containers(plan, settings, volumes),
            ],
            plan,
        ),
        "enableServiceLinks": False,
        **_pulls(plan, settings),
        **_priority(plan),
        "initContainers": _limited(_init_containers(plan, settings, volumes), plan),
        **pod_claims(plan),
        "resources": pod_resources(plan.config, plan.host),
        "restartPolicy": "Never",
        "securityContext": {
            "seccompProfile": {"type": "RuntimeDefault"},
            # Else the image's groups of root would be added to every user of the file.
            "supplementalGroupsPolicy": "Strict",
        },
        "terminationGracePeriodSeconds": grace_period(plan.config.containers),
        "volumes": volumes.volumes,
        **_placement(plan.host.spec),
    }


def _limited(containers: list[dict[str, Any]], plan: EnclavePlan) -> list[dict[str, Any]]:
    """Limit what each container, ours too, writes to the node's disk."""
    return [limit_disk(each, plan.host) for each in containers]


def grace_period(containers: tuple[ContainerConfig, ...]) -> int:
    """Return the seconds in which the Pod must stop: the longest stop_timeout, at least one."""
    return max(1, *(stop_timeout(each) for each in containers))


def _init_containers(
    plan: EnclavePlan, settings: BuildSettings, volumes: PodVolumes
) -> list[dict[str, Any]]:
    """Build the init containers, in order."""
    mounts = volumes.sidecar_mounts
    keep = keep_container(plan, settings, mounts[KEEP])
    if devices := unassigned_gpu_limits(plan):
        keep["resources"] = {"limits": devices}
    containers = [keep]
    if plan.config.models:
        containers.append(models_container(plan, settings, mounts[MODELS]))
    return containers


def _first_containers(
    plan: EnclavePlan, settings: BuildSettings, volumes: PodVolumes
) -> list[dict[str, Any]]:
    """Build our containers before those of the file: what these wait for when they start."""
    mounts = volumes.sidecar_mounts
    containers = []
    if isolates_containers(plan.host):
        containers.append(net_container(plan, settings, mounts[NET]))
    containers.append(agent_container(plan, settings, mounts[AGENT]))
    if is_signed(plan):
        containers.append(certificate_container(plan, settings, mounts[CERTIFICATE]))
    if needs_key_gate(plan.config.shim):
        containers.append(gate_container(plan, settings, mounts[GATE]))
    if plan.config.shim.ehbp is not None:
        containers.append(bodies_container(plan, settings, mounts[EHBP]))
    return containers


def _last_containers(
    plan: EnclavePlan, settings: BuildSettings, volumes: PodVolumes
) -> list[dict[str, Any]]:
    """Build our containers after those of the file."""
    shim = shim_container(plan, settings, volumes.sidecar_mounts[SHIM])
    if not plan.has_ssh:
        return [shim]
    return [shim, ssh_container(plan, settings, volumes.sidecar_mounts[SSH])]


def _pulls(plan: EnclavePlan, settings: BuildSettings) -> dict[str, Any]:
    """Return the administrator's and the organization's credentials, which are read at each pull.

    The kubelet tries all that fit an image's registry, and continues without one that is missing.
    """
    names = tuple(dict.fromkeys((*settings.pull_secrets, *plan.enclave.spec.pull_secrets)))
    return {"imagePullSecrets": [{"name": name} for name in names]} if names else {}


def _priority(plan: EnclavePlan) -> dict[str, Any]:
    """Return the priority of a Pod that waits for the GPUs of what it replaces."""
    return {"priorityClassName": PRIORITY_CLASS} if plan.enclave.spec.stop_first else {}


def _placement(host: HostSpec) -> dict[str, Any]:
    """Return where the Pod may run; only what the Host specifies is set."""
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
    document = f"{paths.SPEC}/{document_key(index)}"

    def guest(command: str) -> list[str]:
        return [paths.GUEST_BINARY, command, "-spec", document]

    parts: dict[str, Any] = {
        "name": object_name(spec.name),
        "image": plan.facts(spec).image,
        "imagePullPolicy": "IfNotPresent",
        "command": guest("exec"),
        "workingDir": spec.working_dir,
        "env": container_environment(plan, spec),
        "lifecycle": _stop_hook(plan, spec, guest("stop")),
        "resources": container_resources(
            spec, device_limits(plan, spec), container_claims(plan, spec)
        ),
        "restartPolicy": _RESTART_POLICIES[spec.restart],
        "securityContext": _security(spec),
        "volumeMounts": mounts,
    }
    if has_health_check(spec):
        parts |= agent_probe(health_path(spec.name))
    return {key: value for key, value in parts.items() if value not in (None, [], {}, "")}


def _stop_hook(
    plan: EnclavePlan, spec: ContainerConfig, command: list[str]
) -> dict[str, Any] | None:
    """Return the preStop hook; None where the kubelet and the runtime do the same without it.

    They send the image's stop signal, or SIGTERM, and kill at the end of the Pod's grace period.
    """
    usual = plan.facts(spec).stop_signal or _STOP_SIGNAL
    same_signal = spec.stop_signal in {None, usual}
    if same_signal and stop_timeout(spec) == grace_period(plan.config.containers):
        return None
    return {"preStop": {"exec": {"command": command}}}


def _security(spec: ContainerConfig) -> dict[str, Any]:
    """Return what the guest starts with; it drops this for the user of the file."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"add": list(dict.fromkeys((*_LAUNCH, *spec.cap_add))), "drop": ["ALL"]},
        "readOnlyRootFilesystem": spec.read_only,
        "runAsGroup": 0,
        "runAsUser": 0,
    }


UNENFORCED_LIMIT = 64
"""Most entries that the status of a Container has room for."""


def unenforced(config: ServiceConfig) -> tuple[str, ...]:
    """List the fields that no enclave enforces; a Host may add `networks` and `pids_limit`.

    Returns
    -------
    tuple[str, ...]
        Fields such as ``containers[0].pids_limit``, in the order of the file, at most
        `UNENFORCED_LIMIT`; where there are more, the last entry is their number.
    """
    grace = grace_period(config.containers)
    fields = [
        f"containers[{index}].{name}"
        for index, container in enumerate(config.containers)
        for name in _of_container(container, config.containers, grace=grace)
    ]
    if len(fields) > UNENFORCED_LIMIT:
        return (*fields[: UNENFORCED_LIMIT - 1], f"and {len(fields) - UNENFORCED_LIMIT + 1} more")
    return tuple(fields)


def _of_container(
    container: ContainerConfig, containers: Sequence[ContainerConfig], *, grace: int
) -> Iterator[str]:
    """Yield the fields of one container in the order of spec 42."""
    if any(each.name == VISIBLE_DEVICES for each in container.env):
        yield f"env.{VISIBLE_DEVICES}"
    if container.pid is not None:
        yield "pid"
    if container.pids_limit == UNLIMITED:
        yield "pids_limit: -1 up to podPidsLimit"
    elif not has_exact_limit(container, containers):
        yield "pids_limit"
    if container.restart is Restart.ON_FAILURE and container.restart_limit is not None:
        yield "restart"
    # A program that ignores its signal runs until the end of the Pod's grace period: nothing in a
    # PID namespace may kill its first process (PID 1).
    if container.stop_timeout is not None and container.stop_timeout != grace:
        yield "stop_timeout"
