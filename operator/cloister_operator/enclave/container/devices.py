"""Devices of the node for containers of an enclave: GPUs and what the Host allows.

Both are resources of device plugins (Kubernetes, "Device Plugins"): only a plugin decides which
device a container gets, and adds it. GPUs may be a driver's instead (`gpu_claims`).
"""

from cloister_crds.config import ContainerConfig
from cloister_crds.lifecycle.admission.gpus import assigned_gpus, unassigned_gpus
from cloister_crds.lifecycle.admission.host_requirements import device_resource
from cloister_operator.enclave.plan import EnclavePlan

__all__ = ["NO_DEVICES", "VISIBLE_DEVICES", "device_limits", "hides_gpus", "unassigned_gpu_limits"]

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
