"""Volumes of an enclave Pod: the service mount, scratch memory, the guest's directories."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cloister_crds.config import (
    ContainerConfig,
    Ipc,
    metrics_secret,
    secret_is_file,
)
from cloister_crds.kinds.host import DOCUMENT_FILE, TEEUnit
from cloister_crds.lifecycle.admission.host_selection import maps_users
from cloister_crds.measurement import INITDATA_FILE
from cloister_operator.enclave import paths
from cloister_operator.enclave.container import document_key
from cloister_operator.enclave.guest_config.certificate import is_signed
from cloister_operator.enclave.guest_config.measurement import node_socket
from cloister_operator.enclave.guest_config.models import models_memory, store_volume
from cloister_operator.enclave.plan import EnclavePlan
from cloister_operator.enclave.pod.volume_sources import (
    TOKEN_VOLUME,
    memory,
    of_config_map,
    of_snapshot,
    pod_token,
)
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
    SideCar,
    isolates_containers,
    needs_key_gate,
)

_SHM_SHARED = "shm-host"
_GUEST_VOLUME = "guest"
_SPEC_VOLUME = "guest-spec"
_PUBLISHED_VOLUME = "measurement"
_PLAN_VOLUME = "network-plan"
_NETWORK_VOLUME = "network"
_KEEPER_VOLUME = "keeper"
_AGENT_VOLUME = "agent"
_AGENT_DOCUMENT_VOLUME = "agent-document"
_ATTESTATION_VOLUME = "attestation"
_REPORT_VOLUME = "report"
_METRICS_VOLUME = "metrics-token"
_SECRETS_VOLUME = "secrets"
_SHELLS_VOLUME = "shells"
_SSH_VOLUME = "ssh"
_SSH_CONFIG_VOLUME = "ssh-config"
_PUBLIC_VOLUME = "ssh-public"
_GATE_CONFIG_VOLUME = "gate-config"
_GATE_VOLUME = "gate"
_BODIES_CONFIG_VOLUME = "ehbp-config"
_BODIES_VOLUME = "ehbp"
_BODIES_KEY_VOLUME = "ehbp-key"
_MOUNT_POINTS = "mount-points"
_CERTIFICATE_VOLUME = "certificate"
_CERTIFICATE_DOCUMENT_VOLUME = "certificate-document"
_SMALL_BYTES = 16 * 1024 * 1024
_SERVICE_VOLUME = "service"
_MODELS_VOLUME = "models"
_MODELS_DOCUMENT_VOLUME = "models-document"
_MODELS_STATUS_VOLUME = "models-status"
_MODELS_STORE_VOLUME = "models-store"
_SHIM_CONFIG_VOLUME = "shim-config"
_SHIM_DATA_VOLUME = "shim-data"
_SHIM_DATA_BYTES = 32 * 1024 * 1024
_MEBI = 1024 * 1024


@dataclass(slots=True)
class PodVolumes:
    """Volumes of a Pod and where each container has them."""

    volumes: list[dict[str, Any]] = field(default_factory=list)
    """``spec.volumes`` of the Pod."""
    mounts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """``volumeMounts`` by name of the container in the file."""
    sidecar_mounts: dict[SideCar, list[dict[str, Any]]] = field(default_factory=dict)
    """``volumeMounts`` of our own containers."""

    def mount(
        self, container: str, volume: str, path: str, *, read_only: bool, part: str = ""
    ) -> None:
        """Mount a volume, or a part of it, where a container of the file has nothing yet."""
        mounts = self.mounts.setdefault(container, [])
        if all(each["mountPath"] != path for each in mounts):
            mounts.append(_mount(volume, path, read_only=read_only, part=part))

    def mount_sidecar(self, car: SideCar, volume: str, path: str, *, read_only: bool) -> None:
        """Mount a volume into one of our own containers."""
        self.sidecar_mounts.setdefault(car, []).append(_mount(volume, path, read_only=read_only))


def pod_volumes(plan: EnclavePlan, service: str) -> PodVolumes:
    """Build the volumes of a Pod.

    Returns
    -------
    PodVolumes
        All scratch space is memory with a limit and counts in the Pod's memory (Kubernetes,
        "emptyDir"); what the file mounts at ``/dev/shm`` replaces ours.
    """
    result = PodVolumes()
    _add_service(result, plan, f"/{service}")
    _add_models(result, plan, f"/{service}/mpk")
    _add_scratch(result, plan)
    _add_mount_points(result, plan)
    _add_shared_memory(result, plan)
    _add_guest(result, plan)
    _add_agent(result, plan)
    if isolates_containers(plan.host):
        _add_network(result, plan)
    if needs_key_gate(plan.config.shim):
        _add_gate(result, plan)
    if plan.config.shim.ehbp is not None:
        _add_bodies(result, plan)
    _add_shim(result, plan)
    if plan.has_ssh:
        _add_shells(result, plan)
    if is_signed(plan):
        _add_certificate(result, plan)
    return result


def _add_service(result: PodVolumes, plan: EnclavePlan, path: str) -> None:
    """Mount what the agent writes, read-only, and file secrets in the containers that name them."""
    result.volumes.append(memory(_SERVICE_VOLUME, _SMALL_BYTES))
    result.mount_sidecar(AGENT, _SERVICE_VOLUME, paths.SERVICE, read_only=False)
    for index, container in enumerate(plan.config.containers):
        result.mount(container.name, _SERVICE_VOLUME, path, read_only=True)
        files = [secret for secret in container.secrets if secret_is_file(secret)]
        if files:
            volume = f"{_SECRETS_VOLUME}-{index}"
            result.volumes.append(of_snapshot(volume, plan, {name: name for name in files}))
            result.mount(container.name, volume, f"{path}/secrets", read_only=True)


def _add_models(result: PodVolumes, plan: EnclavePlan, path: str) -> None:
    """Mount the verified models in every container, read-only, and the store in their verifier."""
    store = plan.host.spec.models
    if not plan.config.models or store is None:
        return
    result.volumes += [
        of_config_map(_MODELS_DOCUMENT_VOLUME, plan, [paths.MODELS_KEY]),
        store_volume(_MODELS_STORE_VOLUME, store),
        memory(_MODELS_VOLUME, models_memory(plan.config)),
        memory(_MODELS_STATUS_VOLUME, _SMALL_BYTES),
    ]
    result.mount_sidecar(MODELS, _GUEST_VOLUME, paths.GUEST, read_only=True)
    result.mount_sidecar(MODELS, _MODELS_DOCUMENT_VOLUME, paths.MODELS_CONFIG, read_only=True)
    result.mount_sidecar(MODELS, _MODELS_STORE_VOLUME, paths.MODELS_STORE, read_only=True)
    if store.directory is not None:
        # File systems that are mounted below the directory are read-only too. The nodes that have
        # user namespaces have this; runtimes of machines, and older ones, may not.
        recursive = "Enabled" if maps_users(plan.host.spec) else "IfPossible"
        result.sidecar_mounts[MODELS][-1]["recursiveReadOnly"] = recursive
    result.mount_sidecar(MODELS, _MODELS_VOLUME, paths.MODELS, read_only=False)
    result.mount_sidecar(MODELS, _MODELS_STATUS_VOLUME, paths.MODELS_STATUS, read_only=False)
    result.mount_sidecar(AGENT, _MODELS_STATUS_VOLUME, paths.MODELS_STATUS, read_only=True)
    for container in plan.config.containers:
        result.mount(container.name, _MODELS_VOLUME, path, read_only=True)


def _add_scratch(result: PodVolumes, plan: EnclavePlan) -> None:
    """Add one volume for each source that containers of the file name."""
    names: dict[str, str] = {}
    for container in plan.config.containers:
        for volume in container.volumes:
            if volume.source not in names:
                names[volume.source] = f"scratch-{len(names)}"
                size = plan.config.memory * _MEBI
                result.volumes.append(memory(names[volume.source], size))
            result.mount(
                container.name, names[volume.source], volume.path, read_only=volume.read_only
            )


def _add_mount_points(result: PodVolumes, plan: EnclavePlan) -> None:
    """Add the directories over which the guest mounts a container's own file systems.

    They are empty and cannot be written, so what is not laid over is not there either: shared
    memory of a container with ``ipc: none``.
    """
    places = [(each.name, tmpfs.path) for each in plan.config.containers for tmpfs in each.tmpfs]
    places += [
        (each.name, paths.SHARED_MEMORY) for each in plan.config.containers if each.ipc is Ipc.NONE
    ]
    if places:
        result.volumes.append(memory(_MOUNT_POINTS, _SMALL_BYTES))
    for container, path in places:
        result.mount(container, _MOUNT_POINTS, path, read_only=True)


def _add_shared_memory(result: PodVolumes, plan: EnclavePlan) -> None:
    """Mount in each container its own /dev/shm, or the shared one of all with ``ipc: host``.

    Without that, all containers of a Pod would share one of 64 MiB.
    """
    shared = [each for each in plan.config.containers if each.ipc is Ipc.HOST]
    if shared:
        size = max(_shm_size(plan, each) for each in shared)
        result.volumes.append(memory(_SHM_SHARED, size))
    for index, container in _without_own_shm(result, plan):
        name = _SHM_SHARED
        if container.ipc is not Ipc.HOST:
            name = f"shm-{index}"
            result.volumes.append(memory(name, _shm_size(plan, container)))
        result.mount(container.name, name, paths.SHARED_MEMORY, read_only=False)


def _without_own_shm(
    result: PodVolumes, plan: EnclavePlan
) -> Iterator[tuple[int, ContainerConfig]]:
    """Yield the containers for which the file mounts nothing at /dev/shm."""
    for index, container in enumerate(plan.config.containers):
        mounts = result.mounts.get(container.name, [])
        if all(each["mountPath"] != paths.SHARED_MEMORY for each in mounts):
            yield index, container


def _shm_size(plan: EnclavePlan, container: ContainerConfig) -> int:
    """Return the bytes of /dev/shm: half of the container's limit, else of the enclave's."""
    if container.shm_size is not None:
        return container.shm_size
    return (container.memory or plan.config.memory * _MEBI) // 2


def _add_guest(result: PodVolumes, plan: EnclavePlan) -> None:
    """Mount in every container the guest and the documents."""
    result.volumes.append(memory(_GUEST_VOLUME, 4 * _SMALL_BYTES))
    result.mount_sidecar(KEEP, _GUEST_VOLUME, paths.GUEST, read_only=False)
    result.volumes.append(of_config_map(_PUBLISHED_VOLUME, plan, _published_keys(plan)))
    result.mount_sidecar(KEEP, _PUBLISHED_VOLUME, paths.PUBLISHED, read_only=True)
    keys = [document_key(index) for index in range(len(plan.config.containers))]
    result.volumes.append(of_config_map(_SPEC_VOLUME, plan, keys))
    for container in plan.config.containers:
        name = container.name
        result.mount(name, _GUEST_VOLUME, paths.GUEST, read_only=True)
        result.mount(name, _SPEC_VOLUME, paths.SPEC, read_only=True)


def _add_agent(result: PodVolumes, plan: EnclavePlan) -> None:
    """Mount the agent's documents and directories, and each container's own report socket."""
    result.volumes += [
        of_config_map(
            _AGENT_DOCUMENT_VOLUME, plan, [paths.AGENT_KEY, paths.CONFIG_KEY, paths.UNMEASURED_KEY]
        ),
        memory(_AGENT_VOLUME, _SMALL_BYTES),
        memory(_KEEPER_VOLUME, _SMALL_BYTES),
    ]
    result.mount_sidecar(KEEP, _KEEPER_VOLUME, paths.KEEPER, read_only=False)
    result.mount_sidecar(AGENT, _KEEPER_VOLUME, paths.KEEPER, read_only=True)
    result.mount_sidecar(AGENT, _AGENT_DOCUMENT_VOLUME, paths.AGENT_CONFIG, read_only=True)
    result.mount_sidecar(AGENT, _GUEST_VOLUME, paths.GUEST, read_only=True)
    result.mount_sidecar(AGENT, _AGENT_VOLUME, paths.AGENT, read_only=False)
    socket = node_socket(plan)
    if socket is not None:
        source = {"path": socket, "type": "Socket"}
        result.volumes.append({"name": _ATTESTATION_VOLUME, "hostPath": source})
        result.mount_sidecar(AGENT, _ATTESTATION_VOLUME, socket, read_only=True)
    if (metrics := metrics_secret(plan.secrets)) is not None:
        result.volumes.append(of_snapshot(_METRICS_VOLUME, plan, {metrics: "token"}))
        result.mount_sidecar(AGENT, _METRICS_VOLUME, paths.METRICS, read_only=True)
    if not _is_machine(plan):
        result.volumes.append(memory(_REPORT_VOLUME, _SMALL_BYTES))
        result.mount_sidecar(AGENT, _REPORT_VOLUME, paths.REPORT, read_only=False)
    _add_folders(result, plan, _Folders(_REPORT_VOLUME, paths.OWN_REPORT, AGENT, paths.REPORT))


def _published_keys(plan: EnclavePlan) -> list[str]:
    """Return the entries of the ConfigMap with what was measured."""
    return [DOCUMENT_FILE, *([INITDATA_FILE] if plan.host.spec.tee_unit is TEEUnit.POD else [])]


def _add_network(result: PodVolumes, plan: EnclavePlan) -> None:
    """Mount the network's document and sockets, and each container's own wiring socket."""
    result.volumes += [
        of_config_map(_PLAN_VOLUME, plan, [paths.NETWORK_KEY, paths.UNMEASURED_KEY]),
        memory(_NETWORK_VOLUME, _SMALL_BYTES),
    ]
    result.mount_sidecar(NET, _GUEST_VOLUME, paths.GUEST, read_only=True)
    result.mount_sidecar(NET, _PLAN_VOLUME, paths.NETWORK_CONFIG, read_only=True)
    result.mount_sidecar(NET, _NETWORK_VOLUME, paths.NETWORK, read_only=False)
    result.mount_sidecar(NET, _KEEPER_VOLUME, paths.KEEPER, read_only=True)
    result.mount_sidecar(AGENT, _NETWORK_VOLUME, paths.NETWORK, read_only=True)
    folders = _Folders(_NETWORK_VOLUME, paths.OWN_WIRING, NET, paths.NETWORK, within="wiring/")
    _add_folders(result, plan, folders)


def _add_shells(result: PodVolumes, plan: EnclavePlan) -> None:
    """Mount the SSH server's document and keys, and the directory of each container's socket."""
    result.volumes += [
        of_config_map(_SSH_CONFIG_VOLUME, plan, [paths.SSH_KEY, paths.UNMEASURED_KEY]),
        *(memory(name, _SMALL_BYTES) for name in (_SSH_VOLUME, _PUBLIC_VOLUME)),
    ]
    result.mount_sidecar(SSH, _GUEST_VOLUME, paths.GUEST, read_only=True)
    result.mount_sidecar(SSH, _SSH_CONFIG_VOLUME, paths.SSH_CONFIG, read_only=True)
    if not _is_machine(plan):
        result.volumes.append(memory(_SHELLS_VOLUME, _SMALL_BYTES))
        result.mount_sidecar(SSH, _SHELLS_VOLUME, paths.SHELLS, read_only=True)
    result.mount_sidecar(SSH, _SSH_VOLUME, paths.HOST_KEY, read_only=False)
    for car in (SSH, SHIM):
        result.mount_sidecar(car, _PUBLIC_VOLUME, paths.PUBLIC_HOST_KEY, read_only=car is SHIM)
    folders = _Folders(_SHELLS_VOLUME, paths.OWN_SHELL, SSH, paths.SHELLS, writer=False)
    _add_folders(result, plan, folders)


def _is_machine(plan: EnclavePlan) -> bool:
    """Return whether the Pod is a machine, whose runtime copies parts of volumes into it."""
    return plan.host.spec.starts_machines


@dataclass(frozen=True, slots=True)
class _Folders:
    """Directories for sockets, one for each container of the file, which mounts only that one."""

    volume: str
    """Volume of all of them, and the first part of the names of volumes of one each."""
    place: str
    """Where a container has its own."""
    car: SideCar
    """Our sidecar, which has all of them."""
    directory: str
    """Where it has them."""
    within: str = ""
    """Path below `directory` and in the volume."""
    writer: bool = True
    """Whether the sidecar creates the sockets; else the containers do."""


def _add_folders(result: PodVolumes, plan: EnclavePlan, folders: _Folders) -> None:
    """Mount a directory in each container: a part of a volume, or a volume of its own.

    It is the directory and not the socket in it, since a restart creates another socket.
    """
    for index, container in enumerate(plan.config.containers):
        name, part = container.name, f"{folders.within}{container.name}"
        volume = folders.volume
        if _is_machine(plan):
            volume, own = f"{volume}-{index}", f"{folders.directory}/{part}"
            part = ""
            result.volumes.append(memory(volume, _SMALL_BYTES))
            result.mount_sidecar(folders.car, volume, own, read_only=not folders.writer)
        result.mount(name, volume, folders.place, read_only=folders.writer, part=part)


def _add_shim(result: PodVolumes, plan: EnclavePlan) -> None:
    """Mount the shim's configuration and a directory for its keys."""
    result.volumes.append(
        of_config_map(_SHIM_CONFIG_VOLUME, plan, [paths.SHIM_KEY, paths.UNMEASURED_KEY])
    )
    result.volumes.append(memory(_SHIM_DATA_VOLUME, _SHIM_DATA_BYTES))
    result.mount_sidecar(SHIM, _SHIM_CONFIG_VOLUME, paths.SHIM_CONFIG, read_only=True)
    result.mount_sidecar(SHIM, _GUEST_VOLUME, paths.GUEST, read_only=True)
    result.mount_sidecar(SHIM, _SHIM_DATA_VOLUME, paths.SHIM_DATA, read_only=False)
    result.mount_sidecar(SHIM, _AGENT_VOLUME, paths.AGENT, read_only=True)


def _add_certificate(result: PodVolumes, plan: EnclavePlan) -> None:
    """Mount the certificate sidecar's documents, the token and a directory for the key.

    The shim reads the place. The agent reads the fingerprint of the key there: the key itself is
    only for the shim's group.
    """
    keys = [paths.CERTIFICATE_KEY, paths.AUTHORITIES_KEY, paths.UNMEASURED_KEY]
    result.volumes += [
        of_config_map(_CERTIFICATE_DOCUMENT_VOLUME, plan, keys),
        pod_token(plan),
        memory(_CERTIFICATE_VOLUME, _SMALL_BYTES),
    ]
    result.mount_sidecar(CERTIFICATE, _GUEST_VOLUME, paths.GUEST, read_only=True)
    result.mount_sidecar(
        CERTIFICATE, _CERTIFICATE_DOCUMENT_VOLUME, paths.CERTIFICATE_CONFIG, read_only=True
    )
    result.mount_sidecar(CERTIFICATE, TOKEN_VOLUME, paths.TOKEN, read_only=True)
    socket = node_socket(plan)
    if socket is not None:
        result.mount_sidecar(CERTIFICATE, _ATTESTATION_VOLUME, socket, read_only=True)
    for car in (CERTIFICATE, SHIM, AGENT):
        result.mount_sidecar(
            car, _CERTIFICATE_VOLUME, paths.CERTIFICATE, read_only=car is not CERTIFICATE
        )


def _add_gate(result: PodVolumes, plan: EnclavePlan) -> None:
    """Mount the key gate's document, and the directory of its socket, which the shim has too."""
    keys = [paths.GATE_KEY, paths.AUTHORITIES_KEY, paths.UNMEASURED_KEY]
    result.volumes.append(of_config_map(_GATE_CONFIG_VOLUME, plan, keys))
    result.volumes.append(memory(_GATE_VOLUME, _SMALL_BYTES))
    result.mount_sidecar(GATE, _GUEST_VOLUME, paths.GUEST, read_only=True)
    result.mount_sidecar(GATE, _GATE_CONFIG_VOLUME, paths.GATE_CONFIG, read_only=True)
    result.mount_sidecar(GATE, _GATE_VOLUME, paths.GATE, read_only=False)
    for car in (SHIM, AGENT):
        result.mount_sidecar(car, _GATE_VOLUME, paths.GATE, read_only=True)


def _add_bodies(result: PodVolumes, plan: EnclavePlan) -> None:
    """Mount the document of encrypted bodies, their key, and what the shim and the agent read."""
    result.volumes += [
        of_config_map(_BODIES_CONFIG_VOLUME, plan, [paths.BODIES_KEY]),
        *(memory(name, _SMALL_BYTES) for name in (_BODIES_VOLUME, _BODIES_KEY_VOLUME)),
    ]
    result.mount_sidecar(EHBP, _GUEST_VOLUME, paths.GUEST, read_only=True)
    result.mount_sidecar(EHBP, _BODIES_CONFIG_VOLUME, paths.BODIES_CONFIG, read_only=True)
    result.mount_sidecar(EHBP, _BODIES_KEY_VOLUME, paths.BODIES_PRIVATE_KEY, read_only=False)
    for car in (EHBP, SHIM, AGENT):
        result.mount_sidecar(car, _BODIES_VOLUME, paths.BODIES, read_only=car is not EHBP)


def _mount(volume: str, path: str, *, read_only: bool, part: str = "") -> dict[str, Any]:
    """Return an entry of ``volumeMounts``."""
    entry: dict[str, Any] = {"name": volume, "mountPath": path}
    if part:
        entry["subPath"] = part
    return {**entry, "readOnly": True} if read_only else entry
