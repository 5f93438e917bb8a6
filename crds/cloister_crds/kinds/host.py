"""Host: a profile of a node pool that enclaves can run on."""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from cloister_crds.kinds.host_devices import Device, Gpu
from cloister_crds.kinds.meta import KindInfo, Model, Resource, Status
from cloister_crds.kinds.scalars import Count, Flag, ObjectName, Whole
from cloister_crds.schema.markers import Cel, Column, ListType, matches

__all__ = [
    "DISK_MB",
    "TEE",
    "Host",
    "HostCapacity",
    "HostSpec",
    "HostStatus",
    "InitdataFile",
    "ModelStore",
    "NetworkIsolation",
    "NodeLabel",
    "Overcommit",
    "Sizing",
    "TEEUnit",
    "Toleration",
]

DOCUMENT_FILE = "measurement.json"
"""Name under which the initdata of an enclave carries its own measurement document."""
DISK_MB = 10_240
"""MiB of the node's disk for each container, where a Host sets nothing else."""
INITDATA_LENGTH = 131_072
"""Most characters of all initdata files of a Host together: the compressed document is an
annotation, and all annotations of a Pod share 256 KiB (Kubernetes, "Annotations")."""


class TEE(StrEnum):
    """Trusted execution environment of the host's machines."""

    NONE = "None"
    SNP = "SNP"
    TDX = "TDX"


class TEEUnit(StrEnum):
    """What the memory encryption of a TEE encloses."""

    NODE = "Node"
    """The whole node is a confidential machine; enclaves share it."""
    POD = "Pod"
    """Each enclave Pod is a confidential machine of its own (a Kata runtime class)."""


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
    """effect of the taint; unset means every effect."""


class ModelStore(Model):
    """Where the model weights of configuration files lie: files ROOTHASH.mpk."""

    CEL: ClassVar[tuple[Cel, ...]] = (
        Cel(
            rule="has(self.directory) != has(self.claim)",
            message="set one of directory and claim: a directory of every node, or a "
            "PersistentVolumeClaim of every organization's namespace",
            check=lambda store: (store.directory is None) != (store.claim is None),
        ),
    )

    directory: (
        Annotated[
            str,
            Field(min_length=2, max_length=255),
            matches(
                r"^(/[A-Za-z0-9_+-][A-Za-z0-9_.+-]*)+$",
                "directory is an absolute path on the nodes without . or .., such as /srv/models",
            ),
        ]
        | None
    ) = None
    """directory on every node of the pool; enclaves read it. Unset if a claim holds the store."""
    claim: ObjectName | None = None
    """claim is the name of a PersistentVolumeClaim that every organization's namespace has.
    Unset if a directory of the nodes holds the store."""
    known: (
        Annotated[
            tuple[
                Annotated[
                    str,
                    Field(max_length=128),
                    matches(
                        r"^[0-9a-f]{64}_[1-9][0-9]{0,17}_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
                        "known lists values of mpk: ROOTHASH_OFFSET_UUID",
                    ),
                ],
                ...,
            ],
            Field(max_length=1024),
            ListType("set"),
        ]
        | None
    ) = None
    """known lists the values of mpk that the store has, as `cloister models index` prints them;
    files that name others are refused. Unset means an enclave finds out when it starts."""


class Sizing(Model):
    """What the platform takes in addition to the containers of the file."""

    overhead_cpu_milli: Annotated[int, Whole(0, 64_000)] = 0
    """overheadCpuMilli is CPU for our sidecars in thousandths of a core. Default 0."""
    overhead_memory_mb: Annotated[int, Whole(0, 65_536)] = Field(
        default=128, alias="overheadMemoryMB"
    )
    """overheadMemoryMB is memory for our sidecars in MiB; with 0 they take from what the file
    gives its containers. Default 128."""
    ephemeral_storage_mb: Annotated[int, Whole(64, 16_777_216)] = Field(
        default=DISK_MB, alias="ephemeralStorageMB"
    )
    """ephemeralStorageMB is how many MiB each container may have on the node's disk: what it writes
    to its root file system, and its logs. A Pod with one beyond is evicted. Default 10240."""


class Overcommit(Model):
    """How far requests lie below what the file requests; limits stay. tee None only."""

    cpu_percent: Annotated[int, Whole(1, 100)] = 100
    """cpuPercent of the file's cpus that the Pod requests. Default 100."""
    memory_percent: Annotated[int, Whole(1, 100)] = 100
    """memoryPercent of the file's memory that the Pod requests. Default 100."""


class InitdataFile(Model):
    """A file that the initdata of each enclave carries (initdata specification, "data")."""

    name: Annotated[
        str,
        Field(min_length=1, max_length=63),
        matches(
            r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
            "name of an initdata file is of letters, digits, dots, hyphens and underscores, such "
            "as policy.rego",
        ),
    ]
    """name of the file: aa.toml, cdh.toml and policy.rego are read by the guest's components."""
    content: Annotated[str, Field(max_length=INITDATA_LENGTH)]
    """content of the file. Not secret: the machine's owner and every auditor read it."""


class HostSpec(Model):
    """Desired state of a Host: a node pool as its administrator describes it."""

    CEL: ClassVar[tuple[Cel, ...]] = (
        Cel(
            # The whole spec's default is validated before the defaults of its fields are there.
            rule="!has(self.tee) || self.tee == 'None' || has(self.teeUnit)",
            message="teeUnit is needed with a tee; set it to Pod where each enclave is a "
            "confidential machine of its own, to Node where the nodes are",
            field_path=".teeUnit",
            reason="FieldValueRequired",
            check=lambda spec: spec.tee is TEE.NONE or spec.tee_unit is not None,
        ),
        Cel(
            rule="!has(self.teeUnit) || self.tee != 'None'",
            message="teeUnit has no meaning with tee None; leave it out or name the tee",
            field_path=".teeUnit",
            reason="FieldValueForbidden",
            check=lambda spec: spec.tee is not TEE.NONE or spec.tee_unit is None,
        ),
        Cel(
            rule="!has(self.teeUnit) || self.teeUnit != 'Pod' || has(self.runtimeClassName)",
            message="runtimeClassName is needed with teeUnit Pod; name the class that starts a "
            "confidential machine, such as kata-qemu-snp",
            field_path=".runtimeClassName",
            reason="FieldValueRequired",
            check=lambda spec: (
                spec.tee_unit is not TEEUnit.POD or spec.runtime_class_name is not None
            ),
        ),
        Cel(
            rule="!has(self.initdata) || size(self.initdata) == 0 || "
            "(has(self.teeUnit) && self.teeUnit == 'Pod')",
            message="initdata is for teeUnit Pod only: nothing measures it elsewhere; leave "
            "initdata out",
            field_path=".initdata",
            reason="FieldValueForbidden",
            check=lambda spec: not spec.initdata or spec.tee_unit is TEEUnit.POD,
        ),
        Cel(
            rule=f"!has(self.initdata) || !self.initdata.exists(f, f.name == '{DOCUMENT_FILE}')",
            message=f"the name {DOCUMENT_FILE} is the platform's own; name the initdata file "
            "otherwise",
            field_path=".initdata",
            check=lambda spec: all(each.name != DOCUMENT_FILE for each in spec.initdata),
        ),
        Cel(
            rule="!has(self.initdata) || "
            f"self.initdata.map(f, size(f.content)).sum() <= {INITDATA_LENGTH}",
            message=f"initdata has more than {INITDATA_LENGTH} characters together; shorten the "
            "policy",
            field_path=".initdata",
            check=lambda spec: sum(len(f.content) for f in spec.initdata) <= INITDATA_LENGTH,
        ),
        Cel(
            rule="!has(self.attestationService) || self.tee != 'None'",
            message="attestationService has no meaning with tee None; leave it out or name the tee",
            field_path=".attestationService",
            reason="FieldValueForbidden",
            check=lambda spec: spec.attestation_service is None or spec.tee is not TEE.NONE,
        ),
        Cel(
            rule="!has(self.teeUnit) || self.teeUnit != 'Node' || "
            "(has(self.attestationService) && self.attestationService.startsWith('unix://'))",
            message="attestationService is needed with teeUnit Node as the socket of the node's "
            "attestation service, such as unix:///run/attestation/api.sock",
            field_path=".attestationService",
            reason="FieldValueRequired",
            check=lambda spec: (
                spec.tee_unit is not TEEUnit.NODE
                or (spec.attestation_service or "").startswith("unix://")
            ),
        ),
        Cel(
            rule="!has(self.teeUnit) || self.teeUnit != 'Pod' || !has(self.attestationService) || "
            "self.attestationService.startsWith('http://')",
            message="attestationService of teeUnit Pod is an address on the loopback of the "
            "enclave's own machine, such as http://127.0.0.1:8006",
            field_path=".attestationService",
            check=lambda spec: (
                spec.tee_unit is not TEEUnit.POD
                or spec.attestation_service is None
                or spec.attestation_service.startswith("http://")
            ),
        ),
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
    tee_unit: TEEUnit | None = None
    """teeUnit is what is encrypted: Pod, each enclave is a confidential machine (Kata), or Node,
    the nodes are. Needed with a tee, unset without."""
    initdata: Annotated[
        tuple[InitdataFile, ...], Field(max_length=16), ListType("map", keys=("name",))
    ] = ()
    """initdata lists files for the guest of each enclave, in addition to its measurement document;
    their digest is measured by the hardware. teeUnit Pod only. Default none."""
    attestation_service: (
        Annotated[
            str,
            Field(max_length=255),
            matches(
                r"^(http://127[.]0[.]0[.]1:[1-9][0-9]{0,4}|unix:///[A-Za-z0-9_./-]+)$",
                "attestationService is http://127.0.0.1:PORT or unix:///PATH",
            ),
        ]
        | None
    ) = None
    """attestationService answers for evidence inside the confidential machine, as the REST server
    of the guest components does. Unset with teeUnit Pod = http://127.0.0.1:8006."""
    runtime_class_name: ObjectName | None = None
    """runtimeClassName of enclave Pods, such as kata-qemu-snp; unset means the node's default."""
    node_selector: Annotated[
        tuple[NodeLabel, ...], Field(max_length=32), ListType("map", keys=("name",))
    ] = ()
    """nodeSelector lists labels that a node must carry. Default none: every node."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32), ListType("atomic")] = ()
    """tolerations of enclave Pods. Default none."""
    gpu: Gpu | None = None
    """gpu describes the pool's GPUs; unset if there is none."""
    cpu_type: Annotated[str, Field(max_length=63)] = ""
    """cpuType is shown to users, such as EPYC-Genoa. Default empty."""
    devices: Annotated[
        tuple[Device, ...], Field(max_length=32), ListType("map", keys=("path",))
    ] = ()
    """devices that configuration files may name here. Default none."""
    models: ModelStore | None = None
    """models is the store of model weights; unset if there is none, and files with models are
    refused."""
    sizing: Sizing = Field(default_factory=Sizing)
    """sizing is what the platform takes in addition to the containers of the file."""
    overcommit: Overcommit | None = None
    """overcommit requests less than the file requests; tee None only. Unset means no overcommit."""
    network_isolation: NetworkIsolation = NetworkIsolation.CONTAINER
    """networkIsolation is Container or Pod. Default Container."""
    allow_privileged_launcher: Flag = False
    """allowPrivilegedLauncher lets the launcher run without a user namespace on nodes that have
    none. Default false."""
    default: Flag = False
    """default makes this the Host of Containers that name none. At most one should say so; of
    several the first by name counts, which their condition Default reports. Default false."""

    @property
    def starts_machines(self) -> bool:
        """Whether each Pod is a virtual machine of its own."""
        return self.tee_unit is TEEUnit.POD


class HostCapacity(Model):
    """What the pool has."""

    nodes: Count = 0
    """nodes that match and are ready."""


class HostStatus(Status):
    """Observed state of a Host."""

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
        Column("GPU", ".spec.gpu.type"),
        Column("GPU-Counts", ".spec.gpu.counts"),
        Column("Default", ".spec.default", "boolean"),
        Column("Nodes", ".status.capacity.nodes", "integer"),
        Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        Column("Reason", ".status.conditions[?(@.type=='Ready')].reason"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    )

    spec: HostSpec = Field(default_factory=HostSpec)
    status: HostStatus = Field(default_factory=HostStatus)
