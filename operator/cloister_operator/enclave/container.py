"""Builders of one container of the file.

Its document, environment, devices, GPUs, limits and probes.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from cloister_crds.config import (
    ContainerConfig,
    Healthcheck,
    Ipc,
    Tmpfs,
    object_name,
    secret_is_file,
)
from cloister_crds.config.effective import has_health_check
from cloister_crds.kinds.enclave import ImageFacts
from cloister_crds.lifecycle.admission.host_requirements import (
    GpuGroup,
    assigned_gpus,
    device_resource,
    gpu_groups,
    unassigned_gpus,
)
from cloister_crds.lifecycle.admission.host_selection import maps_users
from cloister_crds.names import gpu_claim_name
from cloister_operator.enclave import paths
from cloister_operator.enclave.network.addresses import PROBE_PORT
from cloister_operator.enclave.plan import EnclavePlan
from cloister_operator.enclave.sidecars import SSH, isolates_containers

DEFAULT_PROCESSES = 65536
"""Processes of a container where the file says nothing (spec 47.1)."""
UNLIMITED = -1
"""``pids_limit`` of a container that only the Pod's limit bounds, the kubelet's podPidsLimit."""
_CHANGES_USER = "SETUID"
"""With this capability a program has as many counts as there are users."""
_GUEST_THREADS = 64
"""Threads of ``guest net``, and of launchers, that count as root's."""
_CHECKER_THREADS = 16
"""Threads of ``guest checker`` and of a test that begins, which have the container's user."""


def process_limit(container: ContainerConfig, containers: Sequence[ContainerConfig]) -> int | None:
    """Return the limit for the user of a container.

    Returns
    -------
    int or None
        Its own limit where no other container can have its user; else what those that can may have
        together, so that none is kept from what the file gives it. The guest's own threads come on
        top. None if one of them has no limit.
    """
    sharing = [each for each in containers if each is container or _may_share(container, each)]
    if any(each.pids_limit == UNLIMITED for each in sharing):
        return None
    named = [each.pids_limit for each in sharing if _is_named(each)]
    total = sum(named)
    if len(named) < len(sharing):
        total = max(total, DEFAULT_PROCESSES)
    checkers = _CHECKER_THREADS * sum(1 for each in sharing if has_health_check(each))
    return total + checkers + (_GUEST_THREADS if _may_be_root(container) else 0)


def has_exact_limit(container: ContainerConfig, containers: Sequence[ContainerConfig]) -> bool:
    """Return whether `process_limit` is exactly what the file says for this one container.

    The default is a bound against runaway programs and counts as exact. No limit is not, since the
    Pod has one.
    """
    if container.pids_limit == DEFAULT_PROCESSES:
        return True
    if _CHANGES_USER in container.cap_add:
        return False
    unshared = all(each is container or not _may_share(container, each) for each in containers)
    return unshared and _is_named(container) and not _may_be_root(container)


def _is_named(container: ContainerConfig) -> bool:
    return container.pids_limit not in {UNLIMITED, DEFAULT_PROCESSES}


def _may_share(one: ContainerConfig, other: ContainerConfig) -> bool:
    """Return whether two containers may have one user; only the file's own are known for sure."""
    return one.user is None or other.user is None or one.user.uid == other.user.uid


def _may_be_root(container: ContainerConfig) -> bool:
    return container.user is None or container.user.uid == 0


VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""Variable by which NVIDIA's container runtime assigns GPUs. Only the device plugin or the driver
may set it: with another value a container could have GPUs of other enclaves of the node."""
NO_DEVICES = "void"
"""Its value for no GPU and no driver. Without it images that set ``all`` would have every GPU."""


def device_limits(plan: EnclavePlan, container: ContainerConfig) -> dict[str, str]:
    """Return the device resources of a container.

    Returns
    -------
    dict[str, str]
        Amounts by name of the resource, for ``limits``.
    """
    amounts: dict[str, int] = {}
    gpu, count = plan.host.spec.gpu, plan.enclave.spec.summary.gpus
    numbers = assigned_gpus(plan.config, count).get(container.name, ())
    if gpu is not None and gpu.resource is not None and numbers:
        amounts[gpu.resource] = len(numbers)
    named = {device_resource(plan.host, device): device for device in container.devices}
    for resource in named:
        if resource is not None:
            amounts[resource] = amounts.get(resource, 0) + 1
    return {name: str(amount) for name, amount in amounts.items()}


def unassigned_gpu_limits(plan: EnclavePlan) -> dict[str, str]:
    """Return the GPUs that the Pod has and none of its containers is assigned.

    Returns
    -------
    dict[str, str]
        ``limits`` of a sidecar of ours, which holds them: the enclave has all GPUs that it
        requests; empty when nothing is left over.
    """
    gpu, count = plan.host.spec.gpu, plan.enclave.spec.summary.gpus
    if gpu is None or gpu.resource is None:
        return {}
    left = unassigned_gpus(assigned_gpus(plan.config, count), count)
    return {gpu.resource: str(left)} if left else {}


def hides_gpus(plan: EnclavePlan, container: ContainerConfig) -> bool:
    """Return whether a container's runtime must be told that it has no GPUs.

    It has none, or they are a driver's: that adds them by CDI (Container Device Interface), and
    the runtime would add what the image's own variable names. Also on a Host that declares no
    GPUs: its nodes may have some.
    """
    gpu, count = plan.host.spec.gpu, plan.enclave.spec.summary.gpus
    if gpu is None or gpu.resource is None:
        return True
    return not assigned_gpus(plan.config, count).get(container.name)


_DOMAIN = "DOMAIN"


def container_environment(plan: EnclavePlan, spec: ContainerConfig) -> list[dict[str, Any]]:
    """Return the variables: the file's values, deploy-time ones for bare names, secrets.

    Returns
    -------
    list[dict[str, Any]]
        ``env`` of the container. A bare name without a value stays unset; a bare ``DOMAIN`` is the
        public host name unless a variable of that name was set. The runtime adds the image's
        variables. The file cannot choose which GPUs are visible (`devices`).
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
    values.pop(VISIBLE_DEVICES, None)
    if hides_gpus(plan, spec):
        values[VISIBLE_DEVICES] = {"name": VISIBLE_DEVICES, "value": NO_DEVICES}
    return list(values.values())


def _escaped(text: str) -> str:
    """Double each dollar sign: Kubernetes expands ``$(NAME)``, the format does not."""
    return text.replace("$", "$$")


_REQUEST = "gpus"
"""Name of the one request of each claim."""


def build_gpu_claims(plan: EnclavePlan) -> list[dict[str, Any]]:
    """Build the ResourceClaims; none without GPUs, and where a device plugin gives them.

    GPUs that no container has are claimed too: the enclave has all that it requests.
    """
    device_class = plan.host.spec.gpu.device_class if plan.host.spec.gpu else None
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": plan.metadata(gpu_claim_name(plan.name, number)),
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": _REQUEST,
                            "exactly": {
                                "deviceClassName": device_class,
                                "allocationMode": "ExactCount",
                                "count": group.count,
                            },
                        }
                    ]
                }
            },
        }
        for number, group in enumerate(_groups(plan))
    ]


def pod_claims(plan: EnclavePlan) -> dict[str, Any]:
    """Return ``resourceClaims`` of the Pod, as a part of its spec; empty without claims."""
    claims = [
        {"name": _local_name(number), "resourceClaimName": gpu_claim_name(plan.name, number)}
        for number, _ in enumerate(_groups(plan))
    ]
    return {"resourceClaims": claims} if claims else {}


def container_claims(plan: EnclavePlan, container: ContainerConfig) -> list[dict[str, str]]:
    """Return ``claims`` of the resources of a container."""
    return [
        {"name": _local_name(number)}
        for number, group in enumerate(_groups(plan))
        if container.name in group.containers
    ]


def _groups(plan: EnclavePlan) -> tuple[GpuGroup, ...]:
    """Return the groups of GPUs that have a claim each."""
    gpu, count = plan.host.spec.gpu, plan.enclave.spec.summary.gpus
    if gpu is None or gpu.device_class is None:
        return ()
    return gpu_groups(assigned_gpus(plan.config, count), count)


def _local_name(number: int) -> str:
    """Return the name of a claim within the Pod."""
    return f"gpus-{number}"


READY_PATH: Final = "/ready"
"""Path of the enclave's readiness."""
SHIM_PATH: Final = "/stage/shim"
"""Path of the shim's, which the agent looks at each time: it may be restarted."""
_WAIT_SECONDS: Final = 600
"""How long the agent holds a probe until it can be positive."""
_PERIOD: Final = 5
"""Seconds between two looks."""


def health_path(container: str) -> str:
    """Return the path of the health of a container of the file."""
    return f"/health/{container}"


def agent_probe(path: str) -> dict[str, Any]:
    """Return ``readinessProbe`` of a container.

    Parameters
    ----------
    path
        `READY_PATH`, `SHIM_PATH`, or a `health_path`. Containers without one are ready while they
        run: a Pod would otherwise wait for probes that tell nobody anything.
    """
    return {
        "readinessProbe": {
            "httpGet": {"path": f"{path}?wait={_WAIT_SECONDS}", "port": PROBE_PORT},
            "periodSeconds": _PERIOD,
            "timeoutSeconds": _WAIT_SECONDS + 5,
            "failureThreshold": 1,
        }
    }


DEFAULT_STOP_TIMEOUT = 10
"""Seconds between the stop signal and the kill, where the file sets none (as Docker)."""
_VERSION = 1
_DEADLINE_SECONDS = 120
_HOME = "HOME"
_MEBI = 1024 * 1024
_TIMES = ("atime", "noatime", "diratime", "nodiratime", "relatime", "strictatime")


def document_key(index: int) -> str:
    """Return the key of a document in the ConfigMap, and its file name.

    Parameters
    ----------
    index
        Place of the container in the file, from 0.
    """
    return f"container-{index}.json"


def container_document(plan: EnclavePlan, container: ContainerConfig) -> dict[str, Any]:
    """Build the document of how a container is started, checked and stopped.

    Returns
    -------
    dict[str, Any]
        The document of ``guest exec``, ``checker`` and ``stop``.
    """
    image = plan.facts(container)
    document: dict[str, Any] = {
        "version": _VERSION,
        "name": container.name,
        "ipc": "shared" if container.ipc is Ipc.HOST else "private",
        "image": {
            "entrypoint": _words(image.entrypoint),
            "command": _words(image.cmd),
            "workingDir": image.working_dir,
            "user": image.user,
        },
        "entrypoint": _words(container.entrypoint),
        "command": _words(container.command),
        "workingDir": container.working_dir or "",
        "user": _user(container),
        "keepHome": _has_home(container, image),
        "capabilities": list(container.cap_add),
        "limits": _limits(plan, container),
        "tmpfs": {each.path: _options(plan, container, each) for each in container.tmpfs},
        "guestPaths": [paths.GUEST],
        "agent": {
            "socket": f"{paths.OWN_REPORT}/report.sock",
            "deadlineSeconds": _DEADLINE_SECONDS,
        },
        "health": _health(container.healthcheck),
        "stop": {
            "signal": container.stop_signal or image.stop_signal or "SIGTERM",
            "timeoutMillis": 1000 * stop_timeout(container),
        },
    }
    if plan.has_ssh:
        document["shells"] = {
            "socket": f"{paths.OWN_SHELL}/{paths.SHELL_SOCKET}",
            "client": SSH.user,
        }
    if isolates_containers(plan.host):
        socket = f"{paths.OWN_WIRING}/wiring.sock"
        document |= {
            "hostname": object_name(container.name),
            "network": {"socket": socket, "deadlineSeconds": _DEADLINE_SECONDS},
            "lowPorts": True,
        }
    return document


def stop_timeout(container: ContainerConfig) -> int:
    """Return the seconds between the stop signal and the kill."""
    return DEFAULT_STOP_TIMEOUT if container.stop_timeout is None else container.stop_timeout


def _limits(plan: EnclavePlan, container: ContainerConfig) -> dict[str, Any]:
    """Return the resource limits of a container's processes."""
    if not maps_users(plan.host.spec):
        return {}
    most = process_limit(container, plan.config.containers)
    if most is None:
        return {}
    return {"nproc": {"soft": most, "hard": most}}


def _words(words: tuple[str, ...] | None) -> list[str] | None:
    """Return words of a command line; None if not set."""
    return None if words is None else list(words)


def _user(container: ContainerConfig) -> str:
    """Return the user as the file writes it; empty means the image's."""
    user = container.user
    if user is None:
        return ""
    return str(user.uid) if user.gid is None else f"{user.uid}:{user.gid}"


def _has_home(container: ContainerConfig, image: ImageFacts) -> bool:
    """Return whether the file or the image names HOME; else it is the user's directory.

    Whether a bare name gets a value is not known here: variables of a request are not measured.
    """
    named = {entry.name for entry in container.env} | set(container.secrets)
    return _HOME in named | {variable.partition("=")[0] for variable in image.env}


def _options(plan: EnclavePlan, container: ContainerConfig, tmpfs: Tmpfs) -> str:
    """Write the options of a tmpfs as the guest reads them: each once, the last one counting."""
    size = tmpfs.size or container.memory or plan.config.memory * _MEBI
    options = {"size": f"size={size}", "exec": "exec" if tmpfs.executable else "noexec"}
    if tmpfs.read_only:
        options["ro"] = "ro"
    for name, value in (("uid", tmpfs.uid), ("gid", tmpfs.gid)):
        if value is not None:
            options[name] = f"{name}={value}"
    if tmpfs.mode is not None:
        options["mode"] = f"mode={tmpfs.mode:o}"
    for option in tmpfs.options:
        name = option.partition("=")[0]
        if name == "nr_inodes" or name in _TIMES:
            options[name] = option
    return ",".join(options.values())


def _health(check: Healthcheck | None) -> dict[str, Any] | None:
    """Build the health check; None if there is none."""
    if check is None or check.disabled:
        return None
    return {
        "test": list(check.test),
        "intervalMillis": _millis(check.interval),
        "timeoutMillis": _millis(check.timeout),
        "startPeriodMillis": _millis(check.start_period),
        "retries": check.retries,
    }


def _millis(duration: timedelta) -> int:
    """Return whole milliseconds."""
    return duration // timedelta(milliseconds=1)
