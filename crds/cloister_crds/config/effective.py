"""What a container really gets, counted out from the file and the defaults of the format.

For ``cloister config explain`` and the builder of Pods. Source: spec 44, 46, 47.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from cloister_crds.config.limits import secret_is_file
from cloister_crds.config.model import ContainerConfig, Egress, Healthcheck, Ipc, ServiceConfig

__all__ = [
    "MEGABYTE",
    "NETWORKS_SINCE",
    "Mount",
    "boot_allowance",
    "container_mounts",
    "egress_of",
    "grace_period",
    "has_health_check",
    "health_allowance",
    "memory_limit",
    "shared_memory",
    "shared_namespace",
    "silence_allowance",
    "unset_variables",
]

MEGABYTE: Final = 1024 * 1024
"""Bytes of the unit of the top-level memory."""
NETWORKS_SINCE: Final = (0, 10, 0)
"""First version in which containers have networks of their own."""
HEALTH_MARGIN: Final = timedelta(seconds=15)
"""What an enclave may need beyond the times of a health check to run it and report the result."""
DEFAULT_STOP: Final = 10
"""Seconds from the signal to the kill when the file says nothing, as in Docker."""


@dataclass(frozen=True, slots=True)
class Mount:
    """Something that is mounted into a container."""

    path: str
    """Where."""
    what: str
    """What it is, in words."""
    read_only: bool
    """Whether the container may only read it."""


def shared_namespace(config: ServiceConfig) -> bool:
    """Return whether all containers share one network namespace: in files older than 0.10."""
    return config.version < NETWORKS_SINCE


def egress_of(config: ServiceConfig, container: ContainerConfig) -> tuple[Egress, tuple[str, ...]]:
    """Return where a container may go.

    Returns
    -------
    tuple[Egress, tuple[str, ...]]
        The widest egress of its networks, and the hosts of an allowlist. Below version 0.10 it
        is open.
    """
    if shared_namespace(config):
        return Egress.OPEN, ()
    for name in container.networks or ():
        network = config.networks[name]
        if network.egress is not Egress.CLOSED:
            return network.egress, network.allow
    return Egress.CLOSED, ()


def memory_limit(config: ServiceConfig, container: ContainerConfig) -> int:
    """Return the bytes that a container can use at most: its limit, else the enclave's memory."""
    return container.memory or config.memory * MEGABYTE


def shared_memory(config: ServiceConfig, container: ContainerConfig) -> int:
    """Return the bytes of ``/dev/shm``: 0 for ``ipc: none``, by default half of the memory."""
    if container.ipc is Ipc.NONE:
        return 0
    return container.shm_size or memory_limit(config, container) // 2


def grace_period(config: ServiceConfig) -> timedelta:
    """Return the longest time in which any container must stop."""
    stops = (container.stop_timeout for container in config.containers)
    longest = max(DEFAULT_STOP if stop is None else stop for stop in stops)
    return timedelta(seconds=longest)


def container_mounts(
    config: ServiceConfig, container: ContainerConfig, *, service: str
) -> tuple[Mount, ...]:
    """Return all mounts of a container.

    Parameters
    ----------
    service
        The service's name, which names the directory of the verified files.
    """
    root = f"/{service}"
    verified = ("config.yml", "attestation.json", "container-status.json")
    mounts = [Mount(f"{root}/{name}", "the enclave's own", read_only=True) for name in verified]
    mounts += [
        Mount(f"{root}/mpk/mpk-{model.root_hash}", f"model {model.name}", read_only=True)
        for model in config.models
    ]
    mounts += [
        Mount(f"{root}/secrets/{name}", "secret", read_only=True)
        for name in container.secrets
        if secret_is_file(name)
    ]
    mounts += [
        Mount(volume.path, f"scratch space {volume.source}", volume.read_only)
        for volume in container.volumes
    ]
    mounts += [Mount(one.path, "memory", one.read_only) for one in container.tmpfs]
    return tuple(mounts)


def unset_variables(
    container: ContainerConfig, variables: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the bare names of a container that these deploy-time variables give no value."""
    return tuple(
        entry.name
        for entry in container.env
        if entry.value is None and entry.name not in (variables or {})
    )


def health_allowance(check: Healthcheck | None) -> timedelta | None:
    """Return how long after a container's start its health check must have had a result.

    The enclave's agent counts failures, in the way of container engines; this is for a check that
    never has a result.

    Parameters
    ----------
    check
        Health check of the file; None if there is none.

    Returns
    -------
    timedelta | None
        The time of all checks that may fail, with a margin; None if it has no
        health check.
    """
    if check is None or check.disabled:
        return None
    return check.start_period + check.retries * (check.interval + check.timeout) + HEALTH_MARGIN


def silence_allowance(check: Healthcheck | None) -> timedelta | None:
    """Return how long after one result of a health check the next one must have come.

    Parameters
    ----------
    check
        Health check of the file; None if there is none.

    Returns
    -------
    timedelta | None
        The time of one check with a margin; None if it has no health check.
    """
    if check is None or check.disabled:
        return None
    return check.interval + check.timeout + HEALTH_MARGIN


def has_health_check(container: ContainerConfig) -> bool:
    """Return whether a container has a health check that is not switched off."""
    return container.healthcheck is not None and not container.healthcheck.disabled


def boot_allowance(config: ServiceConfig) -> timedelta:
    """Return the longest time that a health check of a file may need; zero without one."""
    checks = (health_allowance(each.healthcheck) for each in config.containers)
    return max((each for each in checks if each is not None), default=timedelta())
