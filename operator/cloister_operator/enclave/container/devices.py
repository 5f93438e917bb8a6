"""Devices of the node that containers of an enclave get: GPUs and what the Host allows.

Both are resources of device plugins (Kubernetes, "Device Plugins"): a plugin alone decides which
device a container gets and puts it there.
"""

from cloister_crds.config import ContainerConfig
from cloister_crds.lifecycle.admission.gpus import assigned_gpus, unassigned_gpus
from cloister_crds.lifecycle.admission.host_requirements import device_resource
from cloister_operator.enclave.plan import EnclavePlan

__all__ = ["NO_DEVICES", "VISIBLE_DEVICES", "granted", "held", "sees_no_gpu"]

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""Variable by which NVIDIA's container runtime gives GPUs. It is the device plugin's to set: with
another value a container could have GPUs of other enclaves of the node."""
NO_DEVICES = "void"
"""Its value for no GPU and no driver. Without it images that say ``all`` would have every GPU."""


def granted(plan: EnclavePlan, container: ContainerConfig) -> dict[str, str]:
    """Return the device resources of a container.

    Returns
    -------
    dict[str, str]
        Amounts by name of the resource, for ``limits``.
    """
    amounts: dict[str, int] = {}
    gpu, count = plan.host.spec.gpu, plan.enclave.spec.summary.gpus
    numbers = assigned_gpus(plan.config, count).get(container.name, ())
    if gpu is not None and numbers:
        amounts[gpu.resource] = len(numbers)
    named = {device_resource(plan.host, device): device for device in container.devices}
    for resource in named:
        if resource is not None:
            amounts[resource] = amounts.get(resource, 0) + 1
    return {name: str(amount) for name, amount in amounts.items()}


def held(plan: EnclavePlan) -> dict[str, str]:
    """Return what the Pod takes beside its containers' own: GPUs that none of them has.

    Returns
    -------
    dict[str, str]
        ``limits`` of a container that runs before the file's; empty when nothing is left over.
        Containers of the file get theirs out of these (Kubernetes, "Init containers", resources),
        and the rest stays the Pod's: the enclave has the GPUs that it asks for, whole.
    """
    gpu, count = plan.host.spec.gpu, plan.enclave.spec.summary.gpus
    if gpu is None or not unassigned_gpus(assigned_gpus(plan.config, count), count):
        return {}
    return {gpu.resource: str(count)}


def sees_no_gpu(plan: EnclavePlan, container: ContainerConfig) -> bool:
    """Return whether a container has to be kept from the GPUs of the node."""
    return plan.host.spec.gpu is not None and container.gpus is None
