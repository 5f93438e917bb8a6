"""GPUs of a DRA driver: the ResourceClaims of an Enclave, and which containers use them.

Source: Kubernetes, "Dynamic Resource Allocation" (resource.k8s.io/v1). A claim is allocated to the
Pod as a whole, so that several of its containers may use the same devices. A container can name
only one request of a claim, so GPUs that different containers have are in claims of their own.
"""

from typing import Any

from cloister_crds.config import ContainerConfig
from cloister_crds.lifecycle.admission.gpus import GpuGroup, assigned_gpus, gpu_groups
from cloister_crds.names import gpu_claim_name
from cloister_operator.enclave.plan import EnclavePlan

__all__ = ["build_gpu_claims", "container_claims", "pod_claims"]

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
