"""Volumes of an enclave Pod: the service mount, scratch space in memory, shared memory."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cloister_crds.config import ContainerSpec, Ipc, secret_is_file
from cloister_operator.enclave.config_map import CONFIG_KEY, SHIM_KEY
from cloister_operator.enclave.plan import EnclavePlan

__all__ = ["SHIM_CONFIG_PATH", "SHIM_DATA_PATH", "PodVolumes", "pod_volumes"]

SHIM_CONFIG_PATH = "/etc/cloister-shim"
"""Where the shim finds its configuration."""
SHIM_DATA_PATH = "/data"
"""Where the shim keeps the keys of its own certificate authority; memory, gone with the Pod."""

_SHM_PATH = "/dev/shm"  # noqa: S108 - the mount point of shared memory
_SHM_SHARED = "shm-host"
_SERVICE_VOLUME = "service"
_SHIM_CONFIG_VOLUME = "shim-config"
_SHIM_DATA_VOLUME = "shim-data"
_SHIM_DATA_BYTES = 32 * 1024 * 1024
_MEBI = 1024 * 1024
_READABLE = 0o444


@dataclass(slots=True)
class PodVolumes:
    """Volumes of a Pod and where each container has them."""

    volumes: list[dict[str, Any]] = field(default_factory=list)
    """``spec.volumes`` of the Pod."""
    mounts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """``volumeMounts`` by name of the container in the file."""
    shim: list[dict[str, Any]] = field(default_factory=list)
    """``volumeMounts`` of the shim."""

    def mount(self, container: str, volume: str, path: str, *, read_only: bool) -> None:
        """Mount a volume into a container of the file, unless it has something there."""
        mounts = self.mounts.setdefault(container, [])
        if all(each["mountPath"] != path for each in mounts):
            entry: dict[str, Any] = {"name": volume, "mountPath": path}
            mounts.append({**entry, "readOnly": True} if read_only else entry)


def pod_volumes(plan: EnclavePlan, service: str) -> PodVolumes:
    """Build the volumes of a Pod.

    Parameters
    ----------
    plan
        The Enclave and its file.
    service
        Name of the mount that every container has.

    Returns
    -------
    PodVolumes
        All scratch space is memory with a limit and counts in the Pod's memory (Kubernetes,
        "emptyDir"); what the file mounts at ``/dev/shm`` replaces ours.
    """
    result = PodVolumes()
    _add_service(result, plan, f"/{service}")
    _add_scratch(result, plan)
    for index, container in enumerate(plan.config.containers):
        _add_tmpfs(result, index, container, plan.config.memory * _MEBI)
    _add_shared_memory(result, plan)
    _add_shim(result, plan)
    return result


def _add_service(result: PodVolumes, plan: EnclavePlan, path: str) -> None:
    """Mount the file, read-only, and to those that name some the secrets that are files."""
    file_source = {
        "configMap": {
            "name": plan.config_map,
            "items": [{"key": CONFIG_KEY, "path": CONFIG_KEY}],
        }
    }
    result.volumes.append(_projected(_SERVICE_VOLUME, [file_source]))
    for index, container in enumerate(plan.config.containers):
        files = [secret for secret in container.secrets if secret_is_file(secret)]
        volume = _SERVICE_VOLUME
        if files:
            volume = f"{_SERVICE_VOLUME}-{index}"
            items = [{"key": name, "path": f"secrets/{name}"} for name in files]
            secret_source = {"secret": {"name": plan.snapshot, "items": items}}
            result.volumes.append(_projected(volume, [file_source, secret_source]))
        result.mount(container.name, volume, path, read_only=True)


def _add_scratch(result: PodVolumes, plan: EnclavePlan) -> None:
    """Make one volume for each source that containers of the file name."""
    names: dict[str, str] = {}
    for container in plan.config.containers:
        for volume in container.volumes:
            if volume.source not in names:
                names[volume.source] = f"scratch-{len(names)}"
                size = plan.config.memory * _MEBI
                result.volumes.append(_memory(names[volume.source], size))
            result.mount(
                container.name, names[volume.source], volume.path, read_only=volume.read_only
            )


def _add_tmpfs(result: PodVolumes, index: int, container: ContainerSpec, memory: int) -> None:
    """Make the file systems in memory that are one container's own."""
    for number, tmpfs in enumerate(container.tmpfs):
        name = f"tmpfs-{index}-{number}"
        result.volumes.append(_memory(name, tmpfs.size or container.memory or memory))
        result.mount(container.name, name, tmpfs.path, read_only=tmpfs.read_only)


def _add_shared_memory(result: PodVolumes, plan: EnclavePlan) -> None:
    """Give each container its own /dev/shm, or the one of all that say ``ipc: host``.

    Without that, all containers of a Pod would share one of 64 MiB.
    """
    shared = [each for each in plan.config.containers if each.ipc is Ipc.HOST]
    if shared:
        size = max(_shm_size(plan, each) for each in shared)
        result.volumes.append(_memory(_SHM_SHARED, size))
    for index, container in _without_own_shm(result, plan):
        name = _SHM_SHARED
        if container.ipc is not Ipc.HOST:
            name = f"shm-{index}"
            result.volumes.append(_memory(name, _shm_size(plan, container)))
        result.mount(container.name, name, _SHM_PATH, read_only=False)


def _without_own_shm(result: PodVolumes, plan: EnclavePlan) -> Iterator[tuple[int, ContainerSpec]]:
    """Go through the containers for which the file mounts nothing at /dev/shm."""
    for index, container in enumerate(plan.config.containers):
        mounts = result.mounts.get(container.name, [])
        if all(each["mountPath"] != _SHM_PATH for each in mounts):
            yield index, container


def _shm_size(plan: EnclavePlan, container: ContainerSpec) -> int:
    """Answer the bytes of /dev/shm: half of the container's limit, else of the enclave's."""
    if container.shm_size is not None:
        return container.shm_size
    return (container.memory or plan.config.memory * _MEBI) // 2


def _add_shim(result: PodVolumes, plan: EnclavePlan) -> None:
    """Give the shim its configuration and a place for its keys."""
    result.volumes.append(
        {
            "name": _SHIM_CONFIG_VOLUME,
            "configMap": {
                "name": plan.config_map,
                "defaultMode": _READABLE,
                "items": [{"key": SHIM_KEY, "path": SHIM_KEY}],
            },
        }
    )
    result.volumes.append(_memory(_SHIM_DATA_VOLUME, _SHIM_DATA_BYTES))
    result.shim = [
        {"name": _SHIM_CONFIG_VOLUME, "mountPath": SHIM_CONFIG_PATH, "readOnly": True},
        {"name": _SHIM_DATA_VOLUME, "mountPath": SHIM_DATA_PATH},
    ]


def _projected(name: str, sources: list[dict[str, Any]]) -> dict[str, Any]:
    """Answer a volume that puts several sources under one mount, readable by every user."""
    return {"name": name, "projected": {"defaultMode": _READABLE, "sources": sources}}


def _memory(name: str, size: int) -> dict[str, Any]:
    """Answer a volume in memory of at most so many bytes."""
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}}
