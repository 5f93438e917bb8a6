"""What the nodes of a Host offer in addition to processors and memory: GPUs and other devices."""

from typing import Annotated, ClassVar

from pydantic import Field, Strict

from cloister_crds.kinds.meta import Model
from cloister_crds.kinds.scalars import ObjectName
from cloister_crds.schema.markers import Cel, ListType, matches

__all__ = ["MOST_CLAIMED", "Device", "Gpu"]

ExtendedResource = Annotated[
    str,
    Field(min_length=3, max_length=253),
    matches(
        r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
        "resource is the extended resource of a device plugin, with its domain, such as "
        "nvidia.com/gpu",
    ),
]
"""Name of an extended resource (Kubernetes, "Extended resources")."""

MOST_CLAIMED = 32
"""Devices that one ResourceClaim may allocate (Kubernetes, resource.k8s.io/v1)."""


class Gpu(Model):
    """GPUs of the pool: those of a device plugin, or those of a driver."""

    CEL: ClassVar[tuple[Cel, ...]] = (
        Cel(
            rule="has(self.resource) != has(self.deviceClass)",
            message="set one of resource and deviceClass: the GPUs of a node are given by a device "
            "plugin, or by a driver of Dynamic Resource Allocation",
            field_path=".resource",
            check=lambda gpu: (gpu.resource is None) != (gpu.device_class is None),
        ),
        Cel(
            rule="!has(self.deviceClass) || !has(self.counts) || "
            f"self.counts.all(count, count <= {MOST_CLAIMED})",
            message=f"counts are at most {MOST_CLAIMED} with deviceClass: a ResourceClaim has no "
            "more devices",
            field_path=".counts",
            check=lambda gpu: (
                gpu.device_class is None or max(gpu.counts, default=0) <= MOST_CLAIMED
            ),
        ),
    )

    resource: ExtendedResource | None = None
    """resource is the extended resource that the device plugin offers, such as nvidia.com/gpu: each
    GPU is given to one container. Unset means deviceClass."""
    device_class: ObjectName | None = None
    """deviceClass is the DeviceClass of the driver's GPUs (Dynamic Resource Allocation), such as
    gpu.nvidia.com: containers of an enclave may share them. Unset means resource."""
    counts: Annotated[
        tuple[Annotated[int, Strict(), Field(ge=1, le=64)], ...],
        Field(max_length=16),
        ListType("set"),
    ] = (1, 8)
    """counts of GPUs that an enclave may have here. Default 1, 8."""
    type: Annotated[str, Field(max_length=63)] = ""
    """type is shown to users, such as H100. Default empty."""
    metrics: (
        Annotated[
            str,
            Field(max_length=255),
            matches(
                r"^http://([a-z0-9]([-.a-z0-9]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?"
                r"/[A-Za-z0-9._/-]*$",
                "metrics is the address of DCGM exporters, such as "
                "http://dcgm-exporter.gpu-operator.svc:9400/metrics",
            ),
        ]
        | None
    ) = None
    """metrics is where NVIDIA's DCGM exporters of the pool's nodes respond; each address of the
    name is one exporter, so a Service must be headless. Unset means GPUs have no metrics."""


class Device(Model):
    """A device path of configuration files and the resource that represents it."""

    path: Annotated[
        str,
        Field(min_length=1, max_length=255),
        matches(
            r"^/dev/[A-Za-z0-9_.:+-]+(/[A-Za-z0-9_.:+-]+)*$",
            "path of a device begins with /dev/, such as /dev/kvm",
        ),
    ]
    """path in the configuration file, such as /dev/kvm."""
    resource: ExtendedResource
    """resource is the extended resource of the device plugin, such as devices.example.com/kvm."""
