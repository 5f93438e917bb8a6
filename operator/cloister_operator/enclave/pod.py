"""The Pod of an Enclave: the containers of the file behind the shim.

Source of the mapping: the format of the configuration file on one side, Kubernetes' Pod API (1.35
or newer: pod-level resources, restartPolicy of single containers) on the other. What this Pod
cannot enforce is listed by `cloister_operator.enclave.unenforced`.
"""

import json
from typing import Any

from cloister_crds.config import ContainerSpec, Restart, object_name, secret_is_file
from cloister_crds.kinds.host import HostSpec
from cloister_crds.lifecycle.pod import boot_allowance
from cloister_operator.enclave.health import readiness_probe
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.resources import container_resources, pod_resources
from cloister_operator.enclave.shim import shim_container
from cloister_operator.enclave.volumes import pod_volumes

__all__ = ["ALLOWANCE_ANNOTATION", "DEFAULT_STOP_TIMEOUT", "build_pod", "grace_period"]

ALLOWANCE_ANNOTATION = "cloister.dev/boot-allowance"
"""Annotation of the Pod: JSON object of seconds within which a container has to be healthy, by
its name in the Pod. It spares whoever judges the Pod another read of the file."""

DEFAULT_STOP_TIMEOUT = 10
"""Seconds between the stop signal and the kill, where the file says nothing (as Docker)."""
_DOMAIN = "DOMAIN"

_RESTART_POLICIES = {
    Restart.NO: "Never",
    Restart.ALWAYS: "Always",
    Restart.ON_FAILURE: "OnFailure",
    Restart.UNLESS_STOPPED: "Always",
}


def build_pod(plan: EnclavePlan, settings: BuildSettings) -> dict[str, Any]:
    """Build the Pod.

    Parameters
    ----------
    plan
        The Enclave, its file and its Host.
    settings
        What the administrator says about every enclave.

    Returns
    -------
    dict[str, Any]
        Manifest for one create; a running Pod is never changed.
    """
    volumes = pod_volumes(plan, settings.service)
    containers = [
        _container(plan, each, volumes.mounts.get(each.name, [])) for each in plan.config.containers
    ]
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "containers": [*containers, shim_container(plan, settings, volumes.shim)],
        "enableServiceLinks": False,
        "resources": pod_resources(plan.config, plan.host),
        "restartPolicy": "Never",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": grace_period(plan.config.containers),
        "volumes": volumes.volumes,
        **_placement(plan.host.spec),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **plan.metadata(plan.name),
            "annotations": {ALLOWANCE_ANNOTATION: _allowances(plan.config.containers)},
        },
        "spec": spec,
    }


def grace_period(containers: tuple[ContainerSpec, ...]) -> int:
    """Answer the seconds that the Pod has to stop: the largest stop_timeout, at least one."""
    return max(
        1,
        *(
            DEFAULT_STOP_TIMEOUT if each.stop_timeout is None else each.stop_timeout
            for each in containers
        ),
    )


def _allowances(containers: tuple[ContainerSpec, ...]) -> str:
    """Write how long each container with a health check may take until it is healthy."""
    seconds = {
        object_name(each.name): allowance.total_seconds()
        for each in containers
        if (allowance := boot_allowance(each.healthcheck)) is not None
    }
    return json.dumps(seconds, sort_keys=True)


def _placement(host: HostSpec) -> dict[str, Any]:
    """Answer where the Pod may run: only what the Host says is set."""
    placement: dict[str, Any] = {}
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
    plan: EnclavePlan, spec: ContainerSpec, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the container of one entry of the file; keys without a value are left out."""
    parts: dict[str, Any] = {
        "name": object_name(spec.name),
        "image": plan.image(spec),
        "imagePullPolicy": "IfNotPresent",
        **_program(plan, spec),
        "workingDir": spec.working_dir,
        "env": _environment(plan, spec),
        "resources": container_resources(spec),
        "readinessProbe": readiness_probe(spec.healthcheck),
        "restartPolicy": _RESTART_POLICIES[spec.restart],
        "securityContext": _security(spec),
        "volumeMounts": mounts,
    }
    return {key: value for key, value in parts.items() if value not in (None, [], {}, "")}


def _program(plan: EnclavePlan, spec: ContainerSpec) -> dict[str, list[str]]:
    """Answer what runs: entrypoint replaces both of the image's words, command only the second.

    An empty list clears what the image has, which Kubernetes cannot say: then the image's own
    words are spelled out.
    """
    if spec.entrypoint:
        return {"command": _literal(spec.entrypoint), "args": _literal(spec.command or ())}
    if spec.entrypoint is not None:
        return {"command": _literal(spec.command or ())}
    if spec.command is not None and not spec.command:
        facts = next((f for f in plan.enclave.spec.images if f.container == spec.name), None)
        return {"command": _literal((facts and facts.entrypoint) or ())}
    return {"args": _literal(spec.command or ())}


def _environment(plan: EnclavePlan, spec: ContainerSpec) -> list[dict[str, Any]]:
    """Answer the variables: the file's values, deploy-time ones for bare names, secrets.

    A bare name without a value stays unset; a bare ``DOMAIN`` is the public host name unless a
    variable of that name was given. Image variables are the runtime's to add.
    """
    given = {each.name: each.value for each in plan.enclave.spec.request.variables}
    if plan.enclave.spec.hostnames:
        given.setdefault(_DOMAIN, plan.enclave.spec.hostnames[0])
    values: dict[str, dict[str, Any]] = {}
    for entry in spec.env:
        value = given.get(entry.name) if entry.value is None else entry.value
        if value is not None:
            values[entry.name] = {"name": entry.name, "value": _escaped(value)}
    for secret in spec.secrets:
        if not secret_is_file(secret):
            reference = {"secretKeyRef": {"name": plan.snapshot, "key": secret}}
            values[secret] = {"name": secret, "valueFrom": reference}
    return list(values.values())


def _security(spec: ContainerSpec) -> dict[str, Any]:
    """Answer the security context: nothing that the file does not ask for.

    Without ``user`` the image's own user holds, name or number: the runtime reads it from the
    image.
    """
    capabilities: dict[str, list[str]] = {"drop": ["ALL"]}
    if spec.cap_add:
        capabilities["add"] = list(spec.cap_add)
    context: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": capabilities,
        "privileged": False,
        "readOnlyRootFilesystem": spec.read_only,
    }
    if spec.user is not None:
        context["runAsUser"] = spec.user.uid
        if spec.user.gid is not None:
            context["runAsGroup"] = spec.user.gid
    return context


def _literal(words: tuple[str, ...]) -> list[str]:
    """Answer words of a command as Kubernetes passes them on unchanged."""
    return [_escaped(word) for word in words]


def _escaped(text: str) -> str:
    """Double each dollar sign: Kubernetes expands ``$(NAME)``, the format does not."""
    return text.replace("$", "$$")
