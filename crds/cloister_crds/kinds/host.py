"""Host: a profile of a node pool that enclaves can run on."""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict

from cloister_crds.kinds.meta import KindInfo, Model, Resource, Status
from cloister_crds.kinds.scalars import Count, Flag, ObjectName, Whole
from cloister_crds.schema.markers import Cel, Column, ListType, matches

__all__ = [
    "TEE",
    "Device",
    "Gpu",
    "Host",
    "HostCapacity",
    "HostSpec",
    "HostStatus",
    "NetworkIsolation",
    "NodeLabel",
    "Overcommit",
    "Sizing",
    "Toleration",
]


class TEE(StrEnum):
    """Trusted execution environment of the host's machines."""

    NONE = "None"
    SNP = "SNP"
    TDX = "TDX"


class NetworkIsolation(StrEnum):
    """What separates the containers of one enclave on the network."""

    CONTAINER = "Container"
    """Each container has a network namespace of its own, wired by the guest."""
    POD = "Pod"
    """All containers of an enclave share the Pod's namespace."""


LabelKey = Annotated[
    str,
    Field(min_length=1, max_length=317),
    matches(
        r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
        "name of a label is such as topology.kubernetes.io/zone or pool",
    ),
]
"""Name of a label (Kubernetes, "Labels and Selectors", syntax)."""
LabelValue = Annotated[
    str,
    Field(max_length=63),
    matches(
        r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
        "value of a label is of letters, digits, hyphens, underscores and dots, and begins and "
        "ends with a letter or digit",
    ),
]
"""Value of a label (Kubernetes, "Labels and Selectors", syntax)."""
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


class NodeLabel(Model):
    """A label that nodes of the pool carry."""

    name: LabelKey
    """name of the label."""
    value: LabelValue = ""
    """value of the label. Default empty."""


class Toleration(Model):
    """A taint that enclave Pods tolerate (Kubernetes, "Taints and Tolerations")."""

    CEL: ClassVar[tuple[Cel, ...]] = (
        Cel(
            rule="self.operator == 'Exists' || (has(self.key) && self.key != '')",
            message="key is needed with operator Equal; name the taint or set operator: Exists",
            field_path=".key",
            check=lambda toleration: toleration.operator == "Exists" or toleration.key != "",
        ),
        Cel(
            rule="self.operator == 'Equal' || !has(self.value) || self.value == ''",
            message="value has no meaning with operator Exists; leave it out",
            field_path=".value",
            check=lambda toleration: toleration.operator == "Equal" or toleration.value == "",
        ),
    )

    key: Annotated[
        str,
        Field(max_length=317),
        matches(
            r"^(([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$",
            "key of a taint is a label name, such as nvidia.com/gpu, or empty",
        ),
    ] = ""
    """key of the taint; empty with operator Exists = every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """operator is Exists or Equal. Default Equal."""
    value: LabelValue = ""
    """value of the taint, with operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """effect of the taint; unset = every effect."""


class Gpu(Model):
    """GPUs of the pool."""

    resource: ExtendedResource
    """resource is the extended resource that the device plugin offers, such as nvidia.com/gpu."""
    counts: Annotated[
        tuple[Annotated[int, Strict(), Field(ge=1, le=64)], ...],
        Field(max_length=16),
        ListType("set"),
    ] = (1, 8)
    """counts of GPUs that an enclave may have here. Default 1, 8."""
    type: Annotated[str, Field(max_length=63)] = ""
    """type is shown to users, such as H100. Default empty."""


class Device(Model):
    """A device path of configuration files and the resource that stands for it."""

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


class Sizing(Model):
    """What the platform takes beside the containers of the file."""

    overhead_cpu_milli: Annotated[int, Whole(0, 64_000)] = 0
    """overheadCpuMilli is CPU for our side-cars in thousandths of a core. Default 0."""
    overhead_memory_mb: Annotated[int, Whole(0, 65_536)] = Field(
        default=0, alias="overheadMemoryMB"
    )
    """overheadMemoryMB is memory for our side-cars in MiB. Default 0."""


class Overcommit(Model):
    """How far requests lie below what the file asks for; limits stay. tee None only."""

    cpu_percent: Annotated[int, Whole(1, 100)] = 100
    """cpuPercent of the file's cpus that the Pod requests. Default 100."""
    memory_percent: Annotated[int, Whole(1, 100)] = 100
    """memoryPercent of the file's memory that the Pod requests. Default 100."""


class HostSpec(Model):
    """What the administrator says of the node pool."""

    CEL: ClassVar[tuple[Cel, ...]] = (
        Cel(
            rule="!has(self.overcommit) || self.tee == 'None'",
            message="overcommit is for tee None only: the memory of a confidential machine is "
            "fixed at its start; leave overcommit out",
            field_path=".overcommit",
            reason="FieldValueForbidden",
            check=lambda spec: spec.overcommit is None or spec.tee is TEE.NONE,
        ),
    )

    tee: TEE = TEE.NONE
    """tee is None, SNP or TDX. None is never shown as confidential. Default None."""
    runtime_class_name: ObjectName | None = None
    """runtimeClassName of enclave Pods, such as kata-qemu-snp; unset = the node's default."""
    node_selector: Annotated[
        tuple[NodeLabel, ...], Field(max_length=32), ListType("map", keys=("name",))
    ] = ()
    """nodeSelector lists labels that a node must carry. Default none: every node."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32), ListType("atomic")] = ()
    """tolerations of enclave Pods. Default none."""
    gpu: Gpu | None = None
    """gpu describes the pool's GPUs; unset = none."""
    cpu_type: Annotated[str, Field(max_length=63)] = ""
    """cpuType is shown to users, such as EPYC-Genoa. Default empty."""
    devices: Annotated[
        tuple[Device, ...], Field(max_length=32), ListType("map", keys=("path",))
    ] = ()
    """devices that configuration files may name here. Default none."""
    sizing: Sizing = Field(default_factory=Sizing)
    """sizing is what the platform takes beside the containers of the file."""
    overcommit: Overcommit | None = None
    """overcommit requests less than the file asks for; tee None only. Unset = no overcommit."""
    network_isolation: NetworkIsolation = NetworkIsolation.CONTAINER
    """networkIsolation is Container or Pod. Default Container."""
    allow_privileged_launcher: Flag = False
    """allowPrivilegedLauncher lets the launcher run without a user namespace on nodes that have
    none. Default false."""
    default: Flag = False
    """default makes this the Host of Containers that name none. At most one should say so; of
    several the first by name counts. Default false."""


class HostCapacity(Model):
    """What the pool has."""

    nodes: Count = 0
    """nodes that match and are ready."""


class HostStatus(Status):
    """What is so."""

    capacity: HostCapacity = Field(default_factory=HostCapacity)
    """capacity of the pool."""


class Host(Resource):
    """A profile of a node pool that enclaves can run on."""

    INFO: ClassVar[KindInfo] = KindInfo(
        kind="Host",
        plural="hosts",
        singular="host",
        short_names=("chost",),
        namespaced=False,
        description="A profile of a node pool that enclaves can run on: its TEE, runtime class, "
        "GPUs and network isolation.",
    )
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("TEE", ".spec.tee"),
        Column("Isolation", ".spec.networkIsolation"),
        Column("Default", ".spec.default", "boolean"),
        Column("Nodes", ".status.capacity.nodes", "integer"),
        Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    )

    spec: HostSpec = Field(default_factory=HostSpec)
    status: HostStatus = Field(default_factory=HostStatus)
