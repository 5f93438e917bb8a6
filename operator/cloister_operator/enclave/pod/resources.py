"""Resources of an enclave Pod: pod-level requests and limits, and limits of single containers."""

from typing import Any

from cloister_crds.config import ContainerConfig, ServiceConfig
from cloister_crds.kinds import Host
from cloister_operator.enclave.guest_config.models import models_memory

_MILLI = 1000
_MEBI = 1024 * 1024
_FULL = 100
_DISK = "ephemeral-storage"
_DISK_REQUEST = "64Mi"
"""Of the node's disk, for each container: its logs at their largest (five files of 10 MiB, the
kubelet's default) and some more."""


def pod_resources(config: ServiceConfig, host: Host) -> dict[str, Any]:
    """Return the resources of the whole Pod (Kubernetes, "Pod-level resources").

    Parameters
    ----------
    config
        The parsed file, with the sum for its containers.
    host
        Its sizing is added for our own sidecars; its overcommit lowers the requests.

    Returns
    -------
    dict[str, Any]
        ``requests`` and ``limits``; equal without overcommit, so that the Pod is Guaranteed.
    """
    sizing, overcommit = host.spec.sizing, host.spec.overcommit
    cpu_share = overcommit.cpu_percent if overcommit else _FULL
    memory_share = overcommit.memory_percent if overcommit else _FULL
    cpu = config.cpus * _MILLI
    # Models are in memory in addition to what the file requests, and are never overcommitted.
    overhead = sizing.overhead_memory_mb + models_memory(config) // _MEBI
    return {
        "limits": {
            "cpu": f"{cpu + sizing.overhead_cpu_milli}m",
            "memory": f"{config.memory + overhead}Mi",
        },
        "requests": {
            "cpu": f"{_share(cpu, cpu_share) + sizing.overhead_cpu_milli}m",
            "memory": f"{_share(config.memory, memory_share) + overhead}Mi",
        },
    }


def container_resources(
    spec: ContainerConfig, devices: dict[str, str], claims: list[dict[str, str]]
) -> dict[str, Any]:
    """Return the resources of one container of the file.

    Parameters
    ----------
    devices
        Its device resources (`cloister_operator.enclave.container.device_limits`).
    claims
        Its claims of GPUs (`cloister_operator.enclave.container.container_claims`).

    Returns
    -------
    dict[str, Any]
        Its claims and its limits, with requests of zero: the Pod as a whole requests, and requests
        equal to the limits could add up to more than that, which the API server refuses. Empty when
        the file sets no limits and it has no devices.
    """
    limits: dict[str, str] = {}
    if spec.cpus is not None:
        limits["cpu"] = f"{max(1, round(spec.cpus * _MILLI))}m"
    if spec.memory is not None:
        limits["memory"] = str(spec.memory)
    requests = dict.fromkeys(limits, "0")
    limits |= devices
    parts = {"limits": limits, "requests": requests, "claims": claims}
    return {name: amounts for name, amounts in parts.items() if amounts}


def limit_disk(container: dict[str, Any], host: Host) -> dict[str, Any]:
    """Return a container of a Pod with a limit for what it writes to the node's disk.

    The limit is one for each container because pod-level resources do not cover it (Kubernetes,
    "Local ephemeral storage"). The request is what a container with a read-only root writes at
    most: a kubelet short of disk first evicts Pods that use more than they request, which such an
    enclave never does. It is not the limit, which hardly any container uses up.
    """
    resources = container.get("resources", {})
    amounts = {
        "limits": {_DISK: f"{host.spec.sizing.ephemeral_storage_mb}Mi"},
        "requests": {_DISK: _DISK_REQUEST},
    }
    merged = {part: {**resources.get(part, {}), **added} for part, added in amounts.items()}
    return {**container, "resources": {**resources, **merged}}


def _share(amount: int, percent: int) -> int:
    """Return a percentage of an amount, rounded up."""
    return -(-amount * percent // _FULL)
