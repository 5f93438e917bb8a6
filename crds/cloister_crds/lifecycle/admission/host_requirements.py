"""What a file requires of its Host: GPUs and which container has which, devices, models. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cloister_crds.config.model import ServiceConfig
from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.kinds.host import Host
from cloister_crds.problems import Problem

__all__ = [
    "GpuGroup",
    "assigned_gpus",
    "capability_problems",
    "device_problems",
    "device_resource",
    "gpu_count",
    "gpu_groups",
    "gpu_problems",
    "host_problems",
    "model_problems",
    "shared_gpus",
    "staging_problems",
    "unassigned_gpus",
]


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """GPUs of an enclave that the same containers have."""

    count: int
    """How many there are."""
    containers: tuple[str, ...]
    """Names of the containers, in the order of the file; empty if no container has them."""


def gpu_count(config: ServiceConfig, given: int | None) -> int:
    """Return how many GPUs an enclave has.

    Parameters
    ----------
    config
        The parsed file.
    given
        spec.gpus; None means the file's value counts.
    """
    return config.gpus if given is None else given


def assigned_gpus(config: ServiceConfig, count: int) -> dict[str, tuple[int, ...]]:
    """Assign the enclave's GPUs to containers.

    Parameters
    ----------
    config
        The parsed file.
    count
        GPUs of the enclave (`gpu_count`).

    Returns
    -------
    dict[str, tuple[int, ...]]
        Ids from 0 by name of the container, for those that have any. ``all`` and ids are taken
        literally, even ids that the enclave does not have. A count takes the first ids that no
        earlier container has and none names; if too few of those are left, the first of all.
    """
    named = {
        number for each in config.containers if isinstance(each.gpus, tuple) for number in each.gpus
    }
    assigned: dict[str, tuple[int, ...]] = {}
    for each in config.containers:
        if each.gpus is None:
            continue
        if isinstance(each.gpus, tuple):
            assigned[each.name] = each.gpus
            continue
        if each.gpus == "all":
            assigned[each.name] = tuple(range(count))
            continue
        taken = named.union(*assigned.values())
        free = [number for number in range(count) if number not in taken]
        # When too few are free, containers share the first ones; sharing is judged elsewhere.
        source = free if len(free) >= each.gpus else range(each.gpus)
        assigned[each.name] = tuple(source[: each.gpus])
    return assigned


def shared_gpus(assigned: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the ids that more than one container has, from the result of `assigned_gpus`."""
    everything = [number for numbers in assigned.values() for number in numbers]
    return tuple(sorted({number for number in everything if everything.count(number) > 1}))


def unassigned_gpus(assigned: dict[str, tuple[int, ...]], count: int) -> int:
    """Return how many GPUs of the enclave no container has.

    Parameters
    ----------
    assigned
        Result of `assigned_gpus`.
    """
    used: Iterable[int] = {number for numbers in assigned.values() for number in numbers}
    return count - len([number for number in used if number < count])


def gpu_groups(assigned: dict[str, tuple[int, ...]], count: int) -> tuple[GpuGroup, ...]:
    """Group the GPUs of an enclave by the containers that have them.

    Parameters
    ----------
    assigned
        Result of `assigned_gpus`.

    Returns
    -------
    tuple[GpuGroup, ...]
        In the order of the first id of each; together they are all of the enclave's.
    """
    sizes: dict[tuple[str, ...], int] = {}
    for number in range(count):
        users = tuple(name for name, numbers in assigned.items() if number in numbers)
        sizes[users] = sizes.get(users, 0) + 1
    return tuple(GpuGroup(size, users) for users, size in sizes.items())


_OVER_THE_NODE = frozenset({"IPC_LOCK", "SYS_NICE", "SYS_RESOURCE"})
"""Capabilities by which a program without a user namespace takes processors, memory that cannot be
paged out, or anything beyond limits and quotas, from all others on its node."""


def host_problems(config: ServiceConfig, host: Host, given: int | None) -> Iterator[Problem]:
    """Yield a problem for each requirement of a file that a Host cannot meet.

    Parameters
    ----------
    config
        The parsed file.
    given
        spec.gpus; None means the file's value counts.
    """
    yield from gpu_problems(config, host, given)
    yield from device_problems(config, host)
    yield from capability_problems(config, host)
    yield from model_problems(config, host)


def gpu_problems(config: ServiceConfig, host: Host, given: int | None) -> Iterator[Problem]:
    """Yield a problem for each GPU requirement that a Host cannot meet.

    Parameters
    ----------
    config
        The parsed file.
    given
        spec.gpus; None means the file's value counts.
    """
    count, name, gpu = gpu_count(config, given), host.metadata.name, host.spec.gpu
    field = "gpus" if given is None else "spec.gpus"
    if count and gpu is None:
        yield _gpus(field, f"Host {name} has no GPUs; leave gpus out or name a Host with GPUs.")
    elif count and gpu is not None and count not in gpu.counts:
        values = ", ".join(str(each) for each in sorted(gpu.counts)) or "none"
        yield _gpus(field, f"{field} is {count}; on Host {name} an enclave may have {values} GPUs.")
    assigned = assigned_gpus(config, count)
    for index, container in enumerate(config.containers):
        if container.gpus is None:
            continue
        path = f"containers[{index}].gpus"
        if not count or max(assigned[container.name], default=0) >= count:
            named = isinstance(container.gpus, tuple)
            wanted = f"GPU {max(assigned[container.name])}" if named else container.gpus
            yield _gpus(
                path,
                f"{path} (container {container.name}) requests {wanted}; the enclave has {count} "
                f"GPUs. Change {field} or the container's gpus.",
            )
    # A device plugin hands each GPU to one container; only resource claims can be shared.
    shared = shared_gpus(assigned)
    if shared and count and gpu is not None and gpu.device_class is None:
        users = [each for each, numbers in assigned.items() if set(numbers) & set(shared)]
        numbers = ", ".join(str(each) for each in shared)
        yield _gpus(
            "containers",
            f"Containers {', '.join(users)} share GPU {numbers}; the device plugin of Host {name} "
            "assigns each GPU to one container. Name a Host with gpu.deviceClass, whose containers "
            "may share them, let one container have it, or split them by ids.",
        )


def device_resource(host: Host, device: str) -> str | None:
    """Return the resource of a device of a file.

    Parameters
    ----------
    device
        Entry of ``devices``: the path, perhaps with the path in the container and rights.

    Returns
    -------
    str | None
        None when the Host does not offer it so: only the device plugin decides the path and the
        rights of a device, which are the same path and all rights.
    """
    path, _, rest = device.partition(":")
    target, _, rights = rest.partition(":")
    if target not in {"", path} or sorted(rights) not in ([], sorted("rwm")):
        return None
    found = (each.resource for each in host.spec.devices if each.path == path)
    return next(found, None)


def capability_problems(config: ServiceConfig, host: Host) -> Iterator[Problem]:
    """Yield a problem for each capability that would hold for the whole node of a Host.

    Parameters
    ----------
    config
        The parsed file.
    """
    if not host.spec.allow_privileged_launcher:
        return
    for index, container in enumerate(config.containers):
        for number, name in enumerate(container.cap_add):
            if name in _OVER_THE_NODE:
                field = f"containers[{index}].cap_add[{number}]"
                yield Problem(
                    field,
                    "CapabilityNotAvailable",
                    f"{field} (container {container.name}) is {name}; on Host "
                    f"{host.metadata.name} Pods have no user namespace of their own, so it would "
                    "hold for the whole node. Remove it, or name a Host without "
                    "allowPrivilegedLauncher.",
                )


def device_problems(config: ServiceConfig, host: Host) -> Iterator[Problem]:
    """Yield a problem for each device that a Host does not offer.

    Parameters
    ----------
    config
        The parsed file.
    """
    offered = ", ".join(each.path for each in host.spec.devices) or "none"
    for index, container in enumerate(config.containers):
        for number, device in enumerate(container.devices):
            if device_resource(host, device) is None:
                field = f"containers[{index}].devices[{number}]"
                yield Problem(
                    field,
                    "DeviceNotAvailable",
                    f"{field} (container {container.name}) is {device}; Host "
                    f"{host.metadata.name} offers, at their own paths with all rights: {offered}. "
                    "Remove it, name another Host, or ask the administrator.",
                )


def model_problems(config: ServiceConfig, host: Host) -> Iterator[Problem]:
    """Yield a problem for each model that a Host does not have.

    Parameters
    ----------
    config
        The parsed file.
    """
    store, name = host.spec.models, host.metadata.name
    if config.models and store is None:
        yield Problem(
            "models",
            "NoModelStore",
            f"Host {name} has no model store; name a Host with one, or ask the administrator.",
        )
    if store is None or store.known is None:
        return
    for index, model in enumerate(config.models):
        if model.mpk not in store.known:
            field = f"models[{index}].mpk"
            yield Problem(
                field,
                "ModelNotFound",
                f"{field} (model {model.name}): the store of Host {name} has no model "
                f"{model.mpk}; correct it, or ask the administrator to add it.",
            )


def _gpus(field: str, message: str) -> Problem:
    return Problem(field, "GpusNotAvailable", message)


def staging_problems(config: ServiceConfig, spec: ContainerSpec) -> Iterator[Problem]:
    """Yield a problem if updates of the Recreate strategy would be staged.

    Parameters
    ----------
    config
        The parsed file.

    Yields
    ------
    Problem
        One, with more than one GPU.
    """
    gpus = gpu_count(config, spec.gpus)
    if spec.staging and gpus > 1:
        yield Problem(
            "spec.staging",
            "StagingNotPossible",
            f"With {gpus} GPUs the present release is deleted before the next one starts, so that "
            "none can wait for promotion; set staging to false.",
        )
